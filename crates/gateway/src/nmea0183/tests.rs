use super::sentence::MAX_SENTENCE;
use super::*;

/// 2014-06-01T10:48:28Z.
const NOW: i64 = 1_401_619_708_000;

/// Sentences, each followed by what Signal K's own parser (3.20.1) makes of it.
const EXPECTED: &str = include_str!("expected.txt");

fn with_sum(data: &str) -> String {
    let sum = data.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${data}*{sum:02X}")
}

fn translate(data: &str) -> Result<Option<Record>, Refused> {
    Translator::new("nmea", None).translate(with_sum(data).as_bytes(), NOW)
}

/// The values of a sentence as JSON; nothing where it says nothing.
fn values(data: &str) -> String {
    let record = translate(data).unwrap();
    record.map_or(String::new(), |record| values_of(&record))
}

fn values_of(record: &Record) -> String {
    let json = record.to_json();
    let (_, values) = json.split_once(r#""values":["#).unwrap();
    values.strip_suffix("]}]}").unwrap().to_owned()
}

fn timestamp_of(record: &Record) -> String {
    let json = record.to_json();
    let (_, rest) = json.split_once(r#""timestamp":""#).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

fn malformed(line: &[u8]) -> String {
    let refused = Translator::new("nmea", None).translate(line, NOW);
    let Err(Refused::Malformed(why)) = refused else {
        panic!("{refused:?}");
    };
    why
}

#[test]
fn values_have_the_same_bits_as_those_of_signal_k() {
    let mut sentences = 0;
    let mut lines = EXPECTED.lines().peekable();
    while let Some(data) = lines.next() {
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            let (path, value) = line.trim().split_once('=').unwrap();
            expected.push(format!(r#"{{"path":"{path}","value":{value}}}"#));
        }
        assert_eq!(values(data), expected.join(","), "{data}");
        sentences += 1;
    }
    assert_eq!(sentences, 37);
}

#[test]
fn a_delta_has_the_shape_of_those_that_signal_k_makes() {
    let sentence = with_sum("IIHDT,90.0,T");
    let mut translator = Translator::new("nmea", Some("vessels.self".to_owned()));
    let record = translator
        .translate(sentence.as_bytes(), NOW)
        .unwrap()
        .unwrap();
    let expected = r#"{"context":"vessels.self","updates":[{"source":{"sentence":"HDT","talker":"II","type":"NMEA0183","label":"nmea"},"$source":"nmea.II","timestamp":"2014-06-01T10:48:28.000Z","values":[{"path":"navigation.headingTrue","value":1.5707963271535559}]}]}"#;
    assert_eq!(record.to_json(), expected);
}

#[test]
fn a_field_that_is_empty_is_never_zero() {
    let fix = values("GPGGA,104830,6000.426,N,02327.883,E,1,08,0.9,,M,,M,,");
    for path in ["antennaAltitude", "geoidalSeparation", "differentialAge"] {
        assert!(!fix.contains(path), "{fix}");
    }
    assert!(fix.contains(r#"{"path":"navigation.gnss.satellites","value":8}"#));
    for nothing in [
        "IIHDT,,T",
        "IIVTG,,T,,M,,N,,K",
        "IIMWV,,R,,N,A",
        "IIVDR,,T,,M,,N",
        "IIVHW,,,,,,N,,K",
        "IIROT,,A",
    ] {
        assert_eq!(values(nothing), "", "{nothing}");
    }
    assert_eq!(
        values("IIMTW,,C"),
        r#"{"path":"environment.water.temperature","value":null}"#
    );
}

#[test]
fn what_its_sender_calls_void_is_not_passed_on() {
    for void in [
        "GPGLL,6000.426,N,02327.883,E,104830,V",
        "IIMWV,336,R,13.4,N,V",
        "IIROT,35.6,V",
        "IIRSA,10.5,V,,V",
        "GPXTE,V,A,0.67,L,N",
        "GPAPB,V,A,0.10,R,N,V,A,011,M,DEST,012,T,013,M",
        "ECRMB,V,0.67,R,001,002,4653.550,N,07115.984,W,3.505,050.3,4.5,V",
    ] {
        assert_eq!(values(void), "", "{void}");
    }
    let fix = values("GPRMC,123519,V,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W");
    assert!(fix.starts_with(r#"{"path":"navigation.position","value":null}"#));
    assert!(fix.contains(r#"{"path":"navigation.speedOverGround","value":null}"#));
}

#[test]
fn damaged_sentences_are_refused_with_the_reason() {
    for (line, why) in [
        ("$IIHDT,274.5,T*1E", "the checksum is 26, and 1E is told"),
        ("$IIHDT,274.5,T", "without a checksum"),
        ("$IIHDT,274.5,T*", "two hexadecimal digits"),
        ("$IIHDT,274.5,T*+3", "two hexadecimal digits"),
        ("IIHDT,274.5,T*23", "does not begin with"),
        ("", "does not begin with"),
        ("\\s:x", "tag block"),
        ("$IIHDT,\u{7f},T*00", "not ASCII"),
        ("$IIHDT,ö,T*00", "not ASCII"),
    ] {
        let found = malformed(line.as_bytes());
        assert!(found.contains(why), "{line}: {found}");
    }
    assert!(malformed(b"$II\xff*00").contains("not ASCII"));
}

#[test]
fn a_sentence_without_end_is_refused() {
    let long = with_sum(&format!("IIHDT,{}", "1".repeat(MAX_SENTENCE)));
    assert!(malformed(long.as_bytes()).contains("without end"));
    // And one of the most that is taken has no number that overflows.
    assert_eq!(values(&format!("IIHDT,{}", "1".repeat(900))), "");
}

#[test]
fn numbers_that_only_a_program_knows_are_none() {
    for text in ["inf", "NaN", "1e3", "0x10", "--1", "1 2"] {
        assert_eq!(values(&format!("IIHDT,{text},T")), "", "{text}");
    }
    assert!(values("IIDPT,-0.0,").contains(r#""value":0}"#));
    let wrong = values("GPGLL,9100.000,N,02327.883,E,104830,A");
    assert!(wrong.contains("null"), "{wrong}");
    let wrong = values("GPGLL,6000.426,X,02327.883,E,104830,A");
    assert!(wrong.contains("null"), "{wrong}");
}

#[test]
fn ais_and_what_is_unknown_count_as_unsupported() {
    let mut translator = Translator::new("nmea", None);
    let ais = b"!AIVDM,1,1,,A,13aEOK?P00PD2wVMdLDRhgvL289?,0*26";
    let refused = translator.translate(ais, NOW);
    assert_eq!(refused, Err(Refused::Unsupported("AIVDM".to_owned())));
    for data in ["IIXYZ,1", "PGRME,15.0,M,45.0,M,25.0,M", "II,1", ""] {
        let refused = translate(data);
        assert!(matches!(refused, Err(Refused::Unsupported(_))), "{data}");
    }
}

#[test]
fn a_tag_block_before_a_sentence_is_passed_over() {
    let line = format!("\\s:r1,c:1609459200*5E\\{}\r\n", with_sum("IIHDT,0,T"));
    let record = Translator::new("nmea", None).translate(line.as_bytes(), NOW);
    assert!(record.unwrap().unwrap().to_json().contains("headingTrue"));
}

#[test]
fn a_sentence_with_a_time_alone_takes_the_date_of_the_last_that_had_one() {
    let mut translator = Translator::new("nmea", None);
    let mut timestamp = |data: &str| {
        let record = translator.translate(with_sum(data).as_bytes(), NOW);
        timestamp_of(&record.unwrap().unwrap())
    };
    let fix = "GPGLL,6000.426,N,02327.883,E,235959.5,A";
    assert_eq!(timestamp(fix), "2014-05-31T23:59:59.500Z");
    timestamp("GPZDA,000001,11,03,2004,-1,00");
    assert_eq!(timestamp(fix), "2004-03-10T23:59:59.500Z");
    // One without a time is of now.
    assert_eq!(timestamp("IIHDT,1.0,T"), "2014-06-01T10:48:28.000Z");
}

#[test]
fn satellites_come_with_the_last_sentence_of_a_report() {
    let mut translator = Translator::new("nmea", None);
    let mut read = |data: &str| {
        let record = translator
            .translate(with_sum(data).as_bytes(), NOW)
            .unwrap();
        record.map(|record| values_of(&record))
    };
    let first = "GPGSV,2,1,05,07,16,321,37,08,29,281,33,10,29,143,35,16,75,216,,0";
    let last = "GPGSV,2,2,05,70,90,180,36";
    assert_eq!(read(first), None);
    let found = read(last).unwrap();
    let head = r#"{"path":"navigation.gnss.satellitesInView","value":{"count":5,"satellites":[{"id":7,"elevation":0.2792526803828544,"azimuth":5.602506900181016,"SNR":37},"#;
    assert!(found.starts_with(head), "{found}");
    let no_signal =
        r#"{"id":16,"elevation":1.30899693929463,"azimuth":3.769911185168534,"SNR":null}"#;
    assert!(found.contains(no_signal), "{found}");
    assert!(found.ends_with(r#""SNR":36}],"gnss":"GPS"}}"#), "{found}");
    // A report with a gap, or mixed with another's, is left out.
    assert_eq!(read(last), None);
    assert_eq!(read(first), None);
    assert_eq!(read("GLGSV,2,2,05,70,90,180,36"), None);
}

#[test]
fn a_report_of_satellites_is_bounded() {
    let mut translator = Translator::new("nmea", None);
    let satellites = ",1,2,3,4".repeat(16);
    let mut read = |data: &str| translator.translate(with_sum(data).as_bytes(), NOW);
    for number in 1..=satellites::MAX_SATELLITES / 16 {
        assert_eq!(read(&format!("GPGSV,99,{number},9{satellites}")), Ok(None));
    }
    let refused = read(&format!("GPGSV,99,5,9{satellites}")).unwrap_err();
    assert!(refused.to_string().contains("too many"));
}

#[test]
fn transducers_are_known_by_their_names() {
    assert_eq!(
        values("IIXDR,P,1.02481,B,Barometer,C,19.5,C,AirTemp,H,55.0,P,Humidity,C,1,C,?"),
        concat!(
            r#"{"path":"environment.outside.pressure","value":102481},"#,
            r#"{"path":"environment.outside.temperature","value":292.65},"#,
            r#"{"path":"environment.outside.relativeHumidity","value":0.55}"#
        )
    );
    assert_eq!(
        values("IIXDR,A,-4.5,D,ROLL,A,1.5,D,PITCH"),
        r#"{"path":"navigation.attitude","value":{"roll":-0.07853981635767779,"pitch":0.026179938785892597,"yaw":null}}"#
    );
    let refused = translate("IIXDR,U,12.4,V,Battery#1");
    assert!(matches!(refused, Err(Refused::Unsupported(_))));
}

#[test]
fn a_label_with_quotes_stays_a_label() {
    let mut translator = Translator::new("a\"\\\n", None);
    let sentence = with_sum("GPXTE,A,A,0.67,L,N");
    let record = translator
        .translate(sentence.as_bytes(), NOW)
        .unwrap()
        .unwrap();
    assert!(record.to_json().contains(r#""$source":"a\"\\\n.GP""#));
}
