use super::*;

fn record(text: &str) -> Record {
    Record::parse(text.as_bytes()).unwrap()
}

fn learn(model: &mut Model, text: &str) {
    model.learn(&[record(text)]);
}

fn coded(model: &mut Model, records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    model.write(records, &mut out);
    out
}

#[test]
fn a_batch_that_says_more_than_one_may_is_refused() {
    let small = record(r#"{"a":1}"#);
    let wide = record(&format!("{{\"a\":[{}1]}}", "1,".repeat(MAX_BATCH_NODES)));
    let long = record(&format!(r#"{{"a":"{}"}}"#, "a".repeat(MAX_BATCH_TEXT)));
    let many = vec![small.clone(); MAX_RECORDS + 1];
    for batch in [&[wide][..], &[long], &many] {
        assert!(!Model::takes(batch));
        let bytes = coded(&mut Model::new(), batch);
        // Few bytes say that much.
        assert!(bytes.len() < 4_000, "{}", bytes.len());
        assert_eq!(Model::new().read(&bytes), Err(Corrupt::TooMuch));
    }
    assert!(Model::takes(&[small]));
}

#[test]
fn names_and_templates_make_room() {
    let mut model = Model::new();
    // More of them than are kept, and some that are too long for a name.
    for at in 0..9_000 {
        learn(&mut model, &format!(r#"{{"a":"text {at}","b":1}}"#));
    }
    learn(
        &mut model,
        &format!(r#"{{"a":"{}","b":1}}"#, "long ".repeat(200)),
    );
    let newest = [record(r#"{"a":"text 8999","b":2}"#)];
    let oldest = [record(r#"{"a":"text 0","b":2}"#)];
    let (new, old) = (coded(&mut model, &newest), coded(&mut model, &oldest));
    assert!(new.len() < old.len(), "{} and {}", new.len(), old.len());
    assert_eq!(model.read(&new).unwrap(), newest);
    assert_eq!(model.read(&old).unwrap(), oldest);
}

#[test]
fn a_large_record_gets_no_template() {
    let mut model = Model::new();
    let of_values = |count: usize| format!("{{\"a\":[{}1]}}", "1,".repeat(count - 3));
    for (text, has) in [
        (of_values(96), true),
        (of_values(97), false),
        (format!(r#"{{"a":"{}"}}"#, "x".repeat(1_000)), true),
        (format!(r#"{{"a":"{}"}}"#, "x".repeat(1_024)), false),
    ] {
        let record = record(&text);
        model.learn(std::slice::from_ref(&record));
        let known = model
            .symbols
            .memory
            .template_of(template::sum_of(&record.nodes));
        assert_eq!(known.is_some(), has, "{} bytes", text.len());
        let bytes = coded(&mut model, std::slice::from_ref(&record));
        assert_eq!(model.read(&bytes).unwrap(), [record]);
    }
}

#[test]
fn what_was_learned_is_taken_back_and_made_again() {
    let texts: Vec<String> = (0..60)
        .map(|at| {
            format!(
                r#"{{"a":"text {}","b":[{at},{at}.5],"c{}":null}}"#,
                at % 7,
                at % 5
            )
        })
        .collect();
    let batches: Vec<Vec<Record>> = texts
        .chunks(3)
        .map(|chunk| chunk.iter().map(|text| record(text)).collect())
        .collect();
    let probe = [record(r#"{"a":"text 3","b":[7,7.5],"c2":null}"#)];
    let mut model = Model::new();
    let mut states = vec![coded(&mut model, &probe)];
    let mut changes = Vec::new();
    for batch in &batches {
        changes.push(model.learn(batch));
        states.push(coded(&mut model, &probe));
    }
    for _ in 0..2 {
        for (changes, state) in changes.iter_mut().zip(&states).rev() {
            model.undo(changes);
            assert_eq!(coded(&mut model, &probe), *state);
        }
        for (changes, state) in changes.iter_mut().zip(&states[1..]) {
            model.redo(changes);
            assert_eq!(coded(&mut model, &probe), *state);
        }
    }
}
