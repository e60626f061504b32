use super::*;

fn record(text: &str) -> Record {
    Record::parse(text.as_bytes()).unwrap()
}

fn batch(value: u64) -> Vec<Record> {
    vec![record(&format!(r#"{{"path":"a","value":{value}}}"#))]
}

/// The message of a new batch.
fn message(encoder: &mut Encoder, batch: Vec<Record>) -> Vec<u8> {
    let number = encoder.push(batch).unwrap();
    let mut message = Vec::new();
    assert!(encoder.encode(number, &mut message));
    message
}

#[test]
fn a_batch_that_comes_too_late_is_sent_again() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let late = message(&mut encoder, batch(0));
    // Coded when nothing was known, and overtaken by all that follow.
    let mut again = Vec::new();
    assert!(encoder.encode(0, &mut again));
    decoder.decode(&again).unwrap();
    let stale = message(&mut encoder, batch(1));
    for value in 2..MAX_UNDONE as u64 + 4 {
        encoder.on_decoded(0..decoder.decoded_below());
        let mut gap = Vec::new();
        if encoder.encode(value - 1, &mut gap) {
            decoder.decode(&gap).unwrap();
        }
        encoder.on_decoded(0..decoder.decoded_below());
        let newest = message(&mut encoder, batch(value));
        decoder.decode(&newest).unwrap();
    }
    assert_eq!(
        decoder.decode(&late).unwrap_err(),
        DecodeError::Duplicate(0)
    );
    assert_eq!(
        decoder.decode(&stale).unwrap_err(),
        DecodeError::Duplicate(1)
    );
    assert_eq!(decoder.undone.len(), MAX_UNDONE);
    // One that is new, and coded in the light of what is no longer to be had.
    let mut old = stale;
    let number = encoder.push(batch(9)).unwrap();
    // The low byte of its number, and the distance from 0.
    old[2] = number as u8;
    old[3] = number as u8;
    assert_eq!(decoder.decode(&old).unwrap_err(), DecodeError::TooLate);
    let mut fresh = Vec::new();
    assert!(encoder.encode(number, &mut fresh));
    assert!(decoder.decode(&fresh).is_ok());
    assert!(decoder.undone_bytes <= MAX_UNDONE_BYTES);
}

#[test]
fn a_batch_that_many_others_overtake_is_decoded() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let late = message(&mut encoder, batch(0));
    for value in 1..1_000 {
        let newer = message(&mut encoder, batch(value));
        decoder.decode(&newer).unwrap();
    }
    assert_eq!(decoder.decode(&late).unwrap().number, 0);
}

#[test]
fn what_waits_for_a_missing_batch_is_bounded() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let missing = message(&mut encoder, batch(0));
    let large = vec![record(&format!("{{\"a\":[{}1]}}", "1,".repeat(60_000)))];
    let mut taken = 0;
    let refusal = loop {
        match decoder.decode(&message(&mut encoder, large.clone())) {
            Ok(_) => taken += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, DecodeError::Full);
    assert!((20..80).contains(&taken), "{taken} batches wait");
    assert!(decoder.waiting < MAX_WAITING + (4 << 20));
    decoder.decode(&missing).unwrap();
    encoder.on_decoded(0..decoder.decoded_below());
    // What waited is learned now, and there is room.
    decoder.decode(&message(&mut encoder, batch(1))).unwrap();
    assert!(decoder.waiting < 1 << 20);
}

#[test]
fn what_has_been_decoded_is_told_in_ranges() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let messages: Vec<Vec<u8>> = (0..8)
        .map(|value| message(&mut encoder, batch(value)))
        .collect();
    for at in [1, 0, 5, 4, 7] {
        decoder.decode(&messages[at]).unwrap();
    }
    assert_eq!(decoder.decoded().collect::<Vec<_>>(), [0..2, 4..6, 7..8]);
    assert_eq!(decoder.decoded_below(), 2);
    encoder.on_decoded(0..2);
    decoder.decode(&message(&mut encoder, batch(8))).unwrap();
    assert_eq!(decoder.decoded().collect::<Vec<_>>(), [0..2, 4..6, 7..9]);
}
