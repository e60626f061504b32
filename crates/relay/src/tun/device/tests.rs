use super::*;

#[test]
fn drops_are_those_the_device_could_not_transmit() {
    let table = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
        lo:       1       2    3    4    5     6          7         8        9       10   11   12   13    14      15         16\n\
        towline0:       1       2    3    4    5     6          7         8        9       10   11   42   13    14      15         16\n";
    assert_eq!(transmit_drops(table), 42);
    assert_eq!(transmit_drops(""), 0);
}
