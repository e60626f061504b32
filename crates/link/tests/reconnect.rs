//! What a sender keeps and sends again when its connection, its program or its spool is another than before.

mod common;

use std::time::Duration;

use towline_link::codec::Record;
use towline_link::receiver::{Arrival, Receiver};
use towline_link::sender::{
    Carrier, Class, Held, Lane, Outgoing, Room, Sender, SenderConfig, SenderError,
};
use towline_wire::{RangeSet, Time};

const ROOM: Room = Room {
    free: 12_000,
    alarms_only: false,
    datagram: 1_200,
    rtt: Duration::from_millis(100),
};

fn record(seq: u64) -> Record {
    let text = format!(
        r#"{{"context":"c","updates":[{{"$source":"s","values":[{{"path":"p{seq}","value":{seq}}}]}}]}}"#
    );
    Record::parse(text.as_bytes()).unwrap()
}

fn sender(seqs: std::ops::Range<u64>) -> Sender {
    Sender::new(SenderConfig::new("test"), &Held { stream: 1, seqs })
}

/// Lets both talk for some seconds; the receiver makes durable what it gets. The numbers that were delivered, and in
/// which lanes.
fn talk(
    now: &mut Time,
    sender: &mut Sender,
    durable: RangeSet,
) -> Result<Vec<(u64, Lane)>, SenderError> {
    let mut receiver = Receiver::new();
    sender.on_connected(*now);
    let mut got = Vec::new();
    for _ in 0..1_000 {
        *now += Duration::from_millis(10);
        while let Some(message) = sender.poll_message(*now, &ROOM) {
            let arrival = receiver.handle_message(*now, &message.bytes).unwrap();
            let lane = match message.carrier {
                Carrier::Batch { lane, .. } => lane,
                _ => Lane::Live,
            };
            match arrival {
                Some(Arrival::Hello(_)) => receiver.accept(durable.clone()),
                Some(Arrival::Delivery(delivery)) => {
                    got.extend(delivery.entries().map(|(seq, _)| (seq, lane)));
                    for seqs in delivery.new {
                        receiver.on_durable(*now, seqs);
                    }
                }
                _ => {}
            }
        }
        while let Some(message) = receiver.poll_message(*now) {
            sender.handle_message(&message.bytes)?;
        }
        if let Some(seqs) = sender.poll_read() {
            let records = seqs.clone().map(|seq| (seq, record(seq))).collect();
            sender.on_read(&seqs, seqs.end, records);
        }
    }
    Ok(got)
}

/// A new connection to a receiver that has these records, and its account of them, which has not come.
fn meet(now: Time, sender: &mut Sender, has: RangeSet) -> (Receiver, Outgoing) {
    let mut receiver = Receiver::new();
    sender.on_connected(now);
    let hello = sender.poll_message(now, &ROOM).unwrap();
    receiver.handle_message(now, &hello.bytes).unwrap();
    receiver.accept(has);
    let account = receiver.poll_message(now).unwrap();
    (receiver, account)
}

#[test]
fn a_receiver_without_a_memory_learns_what_comes_no_more() {
    let (mut now, mut sender) = (Time::ZERO, sender(0..0));
    for seq in 0..20 {
        sender.push(now, seq, record(seq), Class::Telemetry);
    }
    assert_eq!(
        talk(&mut now, &mut sender, RangeSet::default())
            .unwrap()
            .len(),
        20
    );
    assert_eq!(sender.durable(), 20);
    for seq in 20..40 {
        sender.push(now, seq, record(seq), Class::Telemetry);
    }
    // Another one, as a file has behind it that was begun anew.
    let got = talk(&mut now, &mut sender, RangeSet::default()).unwrap();
    assert_eq!(got.first().unwrap().0, 20);
    assert_eq!(sender.durable(), 40);
}

#[test]
fn what_the_receiver_has_waits_no_more_after_a_break() {
    let (mut now, mut sender) = (Time::ZERO, sender(0..0));
    for seq in 0..20 {
        sender.push(now, seq, record(seq), Class::Telemetry);
    }
    sender.on_connected(now);
    now += Duration::from_secs(1);
    while sender.poll_message(now, &ROOM).is_some() {}
    sender.on_disconnected(now);
    // It came, and nobody said so.
    let mut has = RangeSet::default();
    has.insert(0..15);
    let (_, account) = meet(now, &mut sender, has);
    now += Duration::from_secs(1);
    // Nor is it sent before the receiver has spoken.
    assert_eq!(sender.poll_message(now, &ROOM), None);
    assert_eq!(sender.backlog(), 20);
    sender.handle_message(&account.bytes).unwrap();
    assert_eq!(sender.backlog(), 5);
    assert!(sender.poll_message(now, &ROOM).is_some());
    assert_eq!((sender.backlog(), sender.stats().sent), (0, 25));
}

#[test]
fn the_last_values_of_before_a_start_go_first_and_as_new() {
    let (mut now, mut sender) = (Time::ZERO, sender(0..1_000));
    sender.restore(now, 900, record(900), Class::Alarm);
    sender.restore(now, 999, record(999), Class::Telemetry);
    // Neither one that is there already, nor one that is not held.
    sender.restore(now, 999, record(999), Class::Telemetry);
    sender.restore(now, 1_000, record(1_000), Class::Telemetry);
    assert_eq!(sender.backlog(), 1_000);
    now += Duration::from_secs(1);
    let got = talk(&mut now, &mut sender, RangeSet::default()).unwrap();
    assert_eq!(got.len(), 1_000);
    assert_eq!(got[..2], [(900, Lane::Alarm), (999, Lane::Live)]);
    assert!(got[2..].iter().all(|(_, lane)| *lane == Lane::Backfill));
    assert_eq!(sender.durable(), 1_000);
}

#[test]
fn an_older_copy_of_a_spool_is_noticed_and_nothing_of_it_is_taken_for_known() {
    let (mut now, mut copy) = (Time::ZERO, sender(0..20));
    copy.push(now, 20, record(20), Class::Telemetry);
    // The receiver has what was sent after the copy was made.
    let mut has = RangeSet::default();
    has.insert(0..50);
    let error = talk(&mut now, &mut copy, has).unwrap_err();
    assert_eq!(error, SenderError::Older { has: 50, next: 21 });
    assert_eq!(copy.durable(), 0);
    copy.begin_stream(now, 2);
    let got = talk(&mut now, &mut copy, RangeSet::default()).unwrap();
    assert_eq!(got.len(), 21);
    assert_eq!(copy.durable(), 21);
}

#[test]
fn alarms_go_when_the_rate_is_spent() {
    let (mut now, config) = (Time::ZERO, SenderConfig::new("test").rate(Some(100)));
    let mut sender = Sender::new(
        config,
        &Held {
            stream: 1,
            seqs: 0..0,
        },
    );
    sender.on_connected(now);
    for seq in 0..300 {
        sender.push(now, seq, record(seq), Class::Telemetry);
    }
    now += Duration::from_secs(1);
    let mut sent = 0;
    while sender.poll_message(now, &ROOM).is_some() {
        sent += 1;
    }
    assert_eq!(sent, 2, "the hello and a batch");
    assert!(sender.poll_timeout().unwrap() > now);
    sender.push(now, 300, record(300), Class::Alarm);
    assert!(sender.poll_timeout().unwrap() <= now);
    let alarm = sender.poll_message(now, &ROOM).unwrap();
    assert!(matches!(
        alarm.carrier,
        Carrier::Batch {
            lane: Lane::Alarm,
            ..
        }
    ));
    assert!(sender.poll_message(now, &ROOM).is_none());
}

#[test]
fn a_report_that_overtakes_the_account_is_not_forgotten() {
    let (mut now, mut sender) = (Time::ZERO, sender(0..20));
    let mut has = RangeSet::default();
    has.insert(0..20);
    let (mut receiver, account) = meet(now, &mut sender, has);
    now += Duration::from_secs(2);
    let report = receiver.poll_message(now).unwrap();
    assert!(matches!(report.carrier, Carrier::Report { .. }));
    sender.handle_message(&report.bytes).unwrap();
    assert_eq!(sender.durable(), 0);
    sender.handle_message(&account.bytes).unwrap();
    assert_eq!(sender.durable(), 20);
}

#[test]
fn what_logs_say_that_answer_late_is_not_taken_for_another_spool_s() {
    // An older copy of a spool, as long as what the logs have lacks the end of.
    let (mut now, mut copy) = (Time::ZERO, sender(0..20));
    let mut receiver = Receiver::new();
    copy.on_connected(now);
    let hello = copy.poll_message(now, &ROOM).unwrap();
    receiver.handle_message(now, &hello.bytes).unwrap();
    receiver.on_hold(true);
    receiver.accept(RangeSet::default());
    let unknowing = receiver.poll_message(now).unwrap();
    copy.handle_message(&unknowing.bytes).unwrap();
    assert!(copy.is_on_hold());
    // It goes on, up to numbers that the logs do not have.
    for seq in 20..70 {
        copy.push(now, seq, record(seq), Class::Alarm);
    }
    // The logs answer. The report overtakes what else they have.
    let has: RangeSet = std::iter::once(0..50).fold(RangeSet::default(), |mut set, seqs| {
        set.insert(seqs);
        set
    });
    receiver.on_opened(now, &has);
    let account = receiver.poll_message(now).unwrap();
    assert_eq!(account.carrier, Carrier::Control);
    now += Duration::from_secs(2);
    let report = receiver.poll_message(now).unwrap();
    copy.handle_message(&report.bytes).unwrap();
    assert_eq!(copy.durable(), 0, "the spool would be trimmed");
    let error = copy.handle_message(&account.bytes).unwrap_err();
    assert_eq!(error, SenderError::Older { has: 50, next: 20 });
    // One that sent these records itself learns all the same that they are durable.
    let mut whole = sender(0..60);
    let mut receiver = Receiver::new();
    whole.on_connected(now);
    let hello = whole.poll_message(now, &ROOM).unwrap();
    receiver.handle_message(now, &hello.bytes).unwrap();
    receiver.on_hold(true);
    receiver.accept(RangeSet::default());
    let unknowing = receiver.poll_message(now).unwrap();
    receiver.on_opened(now, &has);
    let account = receiver.poll_message(now).unwrap();
    now += Duration::from_secs(2);
    let report = receiver.poll_message(now).unwrap();
    for message in [unknowing, report] {
        whole.handle_message(&message.bytes).unwrap();
    }
    assert_eq!(whole.durable(), 0);
    whole.handle_message(&account.bytes).unwrap();
    assert_eq!(whole.durable(), 50);
}

#[test]
fn what_newer_records_replace_is_not_new_after_a_break() {
    let value = |path: &str, value: u64| {
        let text = format!(
            r#"{{"context":"c","updates":[{{"$source":"s","values":[{{"path":"{path}","value":{value}}}]}}]}}"#
        );
        Record::parse(text.as_bytes()).unwrap()
    };
    let (mut now, mut sender) = (Time::ZERO, sender(0..0));
    for (seq, path) in ["alarm", "alarm", "a", "a", "b"].into_iter().enumerate() {
        let class = match path {
            "alarm" => Class::Alarm,
            _ => Class::Telemetry,
        };
        let seq = seq as u64;
        sender.push(now, seq, value(path, seq), class);
    }
    sender.on_connected(now);
    now += Duration::from_secs(1);
    while sender.poll_message(now, &ROOM).is_some() {}
    sender.on_disconnected(now);
    // Of each name the newest arrived, and was shown before the receiver began anew.
    let has: RangeSet = [1..2, 3..4]
        .into_iter()
        .fold(RangeSet::default(), |mut set, seqs| {
            set.insert(seqs);
            set
        });
    let got = talk(&mut now, &mut sender, has).unwrap();
    let lane = |seq| got.iter().find(|(it, _)| *it == seq).map(|(_, lane)| *lane);
    assert_eq!(lane(0), Some(Lane::Backfill));
    assert_eq!(lane(2), Some(Lane::Backfill));
    assert_eq!(lane(4), Some(Lane::Live));
    assert_eq!(sender.durable(), 5);
}

#[test]
fn what_newer_records_replace_in_part_is_shown_in_part_after_a_break() {
    let delta = |values: &str| {
        let text =
            format!(r#"{{"context":"c","updates":[{{"$source":"s","values":[{values}]}}]}}"#);
        Record::parse(text.as_bytes()).unwrap()
    };
    let a = |value: u64| format!(r#"{{"path":"a","value":{value}}}"#);
    let b = r#"{"path":"b","value":0}"#;
    let vessel = |name: &str| format!(r#"{{"path":"","value":{{{name}"mmsi":"m"}}}}"#);
    // One without a path is no value, and an empty object says nothing.
    let (none, empty) = (r#"{"value":0}"#, r#"{"path":"","value":{}}"#);
    let records = [
        delta(&[none, empty, &a(0), b, &vessel(r#""name":"n","#)].join(",")),
        delta(&[a(1), vessel("")].join(",")),
        // Not sent before the break: what it replaces has not been shown to be old.
        delta(b),
    ];
    let class = |seq: u64| [Class::Telemetry, Class::Alarm][usize::from(seq == 1)];
    for is_restarted in [false, true] {
        let (mut now, mut sent) = (Time::ZERO, sender(0..0));
        sent.on_connected(now);
        for seq in 0..2 {
            sent.push(now, seq, records[seq as usize].clone(), class(seq));
        }
        now += Duration::from_secs(1);
        while sent.poll_message(now, &ROOM).is_some() {}
        sent.on_disconnected(now);
        if is_restarted {
            sent = sender(0..2);
            for seq in 0..2 {
                sent.recall(seq, &records[seq as usize]);
            }
            for seq in 0..2 {
                sent.restore(now, seq, records[seq as usize].clone(), class(seq));
            }
        }
        sent.push(now, 2, records[2].clone(), Class::Telemetry);
        let (mut receiver, account) = meet(now, &mut sent, RangeSet::default());
        sent.handle_message(&account.bytes).unwrap();
        let (mut shown, mut logged) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            now += Duration::from_millis(10);
            while let Some(message) = sent.poll_message(now, &ROOM) {
                let arrival = receiver.handle_message(now, &message.bytes).unwrap();
                let Some(Arrival::Delivery(delivery)) = arrival else {
                    continue;
                };
                let live = delivery.live();
                shown.extend(live.map(|(seq, left)| (seq, left.into_owned())));
                let entries = delivery.entries();
                logged.extend(entries.map(|(seq, record)| (seq, record.clone())));
            }
        }
        let left = delta(&format!(
            r#"{none},{empty},{b},{{"path":"","value":{{"name":"n"}}}}"#
        ));
        let wanted = [(1, records[1].clone()), (0, left), (2, records[2].clone())];
        assert_eq!(shown, wanted, "restarted: {is_restarted}");
        logged.sort_by_key(|(seq, _)| *seq);
        let whole: Vec<_> = (0..).zip(records.iter().cloned()).collect();
        assert_eq!(logged, whole);
    }
}

#[test]
fn what_was_read_for_one_connection_waits_for_the_account_of_the_next() {
    let (mut now, mut sender) = (Time::ZERO, sender(0..30));
    let (_, account) = meet(now, &mut sender, RangeSet::default());
    sender.handle_message(&account.bytes).unwrap();
    let seqs = sender.poll_read().unwrap();
    let records = seqs.clone().map(|seq| (seq, record(seq))).collect();
    sender.on_read(&seqs, seqs.end, records);
    let mut has = RangeSet::default();
    has.insert(0..30);
    let (_, account) = meet(now, &mut sender, has);
    now += Duration::from_secs(1);
    assert_eq!(sender.poll_message(now, &ROOM), None);
    sender.handle_message(&account.bytes).unwrap();
    assert_eq!(
        (sender.poll_message(now, &ROOM), sender.stats().sent),
        (None, 0)
    );
}
