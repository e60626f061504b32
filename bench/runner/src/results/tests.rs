use serde_json::{Value, json};

use super::*;
use crate::figures::Sample;
use crate::figures::tests::{OURS, Speed};

fn written(invalid: Option<&str>) -> Value {
    let mut figures = Figures::default();
    for case in [Speed(None), Speed(Some("upload"))] {
        for value in [0.51, 0.5, 0.7] {
            let samples = vec![
                Sample::result("bulk_s_per_gb", value),
                Sample::detail("Gbit/s", 12.0),
            ];
            figures.add(&case, OURS, "0.1.0 (abc)".to_owned(), samples);
        }
        figures.cases.push(case);
    }
    let json = Results::of(&figures, invalid)
        .to_json()
        .expect("results are JSON");
    serde_json::from_str(&json).expect("results are read back")
}

#[test]
fn the_record_has_the_fields_of_the_targets_and_no_others() {
    assert_eq!(
        written(Some("quinn ÷ floor was not measured")),
        json!({
            "schema": "towline.bench/1",
            "valid": false,
            "reason": "quinn ÷ floor was not measured",
            "rows": [
                {"measure": "bulk_s_per_gb", "stack": "towline", "version": "0.1.0 (abc)", "value": 0.51, "unit": "s/GB"},
                {"measure": "bulk_s_per_gb", "stack": "towline", "version": "0.1.0 (abc)", "value": 0.51, "unit": "s/GB", "setting": "upload"},
            ],
        })
    );
}

#[test]
fn a_run_that_counts_has_no_reason() {
    let written = written(None);
    assert_eq!(written["valid"], json!(true));
    assert_eq!(written.get("reason"), None);
}
