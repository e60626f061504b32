use std::time::{Duration, SystemTime};

use super::*;

fn pin(digit: u8) -> KeyPin {
    parse_key_pin(&format!("sha256/{}", format!("{digit:02x}").repeat(32))).unwrap()
}

#[test]
fn a_list_replaced_by_one_of_the_same_length_and_time_is_read_again() {
    let folder = std::env::temp_dir().join(format!("towline-clients-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let list = folder.join("known-clients");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let write = |path: &Path, pin: KeyPin| {
        std::fs::write(path, format!("boat7 {pin} 2026-11-22\n")).unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    };
    write(&list, pin(1));
    let known = KnownClients::open(list.clone()).unwrap();
    assert!(known.contains(&pin(1)));
    // As deployment tools do it: a file beside it takes its place, with a time of their choice.
    let beside = folder.join("new");
    write(&beside, pin(2));
    std::fs::rename(&beside, &list).unwrap();
    assert!(known.contains(&pin(2)) && !known.contains(&pin(1)));
    // In place, under the same inode.
    write(&list, pin(3));
    assert!(known.contains(&pin(3)) && !known.contains(&pin(2)));
    std::fs::remove_dir_all(&folder).unwrap();
}
