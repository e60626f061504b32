use super::*;

/// 2014-06-01T10:48:28Z.
const NOW: i64 = 1_401_619_708_000;

fn with_sum(data: &str) -> String {
    let sum = data.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${data}*{sum:02X}")
}

fn translate(data: &str) -> Result<Option<Record>, Refused> {
    Translator::new("nmea", None).translate(with_sum(data).as_bytes(), NOW)
}

/// The values of a sentence as `path=json`, and its timestamp.
fn read(data: &str) -> (Vec<String>, String) {
    let Some(record) = translate(data).unwrap() else {
        return (Vec::new(), String::new());
    };
    let delta: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
    let update = &delta["updates"][0];
    let values = update["values"].as_array().unwrap().iter();
    let values = values.map(|value| {
        let path = value["path"].as_str().unwrap();
        format!("{path}={}", value["value"])
    });
    let time = update["timestamp"].as_str().unwrap().to_owned();
    (values.collect(), time)
}
