use super::*;
use crate::figures::Sample;
use crate::marks::Scope;
use crate::plan::{self, Stack};
use serde_json::{Value, json};

fn written(scope: Scope) -> Value {
    let cases = plan::cases(false, false);
    let mut figures = Figures::default();
    for case in cases.iter().filter(|case| case.name == "bulk") {
        for value in [0.51, 0.5, 0.7] {
            let samples = vec![
                Sample::result("bulk_s_per_gb", value),
                Sample::detail("Gbit/s", 12.0),
            ];
            figures.add(case, Stack::Towline, "0.1.0 (abc)".to_owned(), samples);
        }
        figures.cases.push(case.clone());
    }
    let results = Results::of(&figures, &Verdict::of(&figures, scope));
    let json = results.to_json().expect("results are JSON");
    serde_json::from_str(&json).expect("results are read back")
}

#[test]
fn the_record_has_the_fields_of_the_targets_and_no_others() {
    assert_eq!(
        written(Scope::Whole),
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
fn a_quick_run_never_calls_itself_valid() {
    assert_eq!(written(Scope::Quick)["valid"], json!(false));
}
