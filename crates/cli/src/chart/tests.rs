use super::*;

fn panel(points: Vec<(f64, f64)>) -> Panel {
    Panel {
        title: "rate".to_owned(),
        unit: "Mbit/s".to_owned(),
        axis: Axis::Time,
        lines: vec![Line {
            series: Some(0),
            points,
        }],
    }
}

fn chart(panels: Vec<Panel>, series: usize) -> Chart {
    Chart {
        title: "a <b> & c".to_owned(),
        subtitle: "rate=20mbit".to_owned(),
        seconds: 60.0,
        series: (0..series)
            .map(|number| Series {
                name: format!("flow {number}"),
                faint: false,
            })
            .collect(),
        panels,
    }
}

/// Left edge and baseline of every text.
fn texts(svg: &str) -> Vec<(i32, i32)> {
    let number = |part: &str, key: &str| -> Option<i32> {
        let (_, rest) = part.split_once(&format!(" {key}=\""))?;
        rest.split_once('"')?.0.parse().ok()
    };
    svg.split("<text")
        .skip(1)
        .filter_map(|part| Some((number(part, "x")?, number(part, "y")?)))
        .collect()
}

#[test]
fn a_chart_names_its_panels_units_and_series() {
    let line = (0..600).map(|n| (f64::from(n) / 10.0, 17.0)).collect();
    let text = svg(&chart(vec![panel(line)], 2)).expect("a chart");
    for wanted in [
        "rate, Mbit/s",
        "flow 0",
        "flow 1",
        "rate=20mbit",
        "20",
        "60",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing");
    }
    assert!(text.contains("a &lt;b&gt; &amp; c"), "names are escaped");
    // The line, its entry and the other's.
    assert_eq!(text.matches("stroke=\"#0072B2\"").count(), 2);
    assert_eq!(text.matches("stroke=\"#D55E00\"").count(), 1);
}

#[test]
fn no_two_texts_share_a_place_however_many_panels_and_series_there_are() {
    let line = || vec![(0.0, 1.0), (59.0, 300.0)];
    for (panels, series) in [(1, 1), (6, 7), (2, 40)] {
        let panels = (0..panels).map(|_| panel(line())).collect();
        let text = svg(&chart(panels, series)).expect("a chart");
        let mut places = texts(&text);
        let count = places.len();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), count);
        let height: i32 = text
            .split_once("height=\"")
            .and_then(|(_, rest)| rest.split_once('"')?.0.parse().ok())
            .expect("a height");
        assert!(places.iter().all(|(x, y)| *x < WIDTH && *y < height));
    }
}

#[test]
fn ticks_are_round_and_reach_the_largest_value() {
    for (most, labels) in [
        (17.3, &["0", "5", "10", "15", "20"][..]),
        (0.9, &["0.0", "0.5", "1.0"]),
        (600.0, &["0", "200", "400", "600"]),
        (0.0, &["0.0", "0.5", "1.0"]),
        (f64::NAN, &["0.0", "0.5", "1.0"]),
        (5e-324, &["0.0", "0.5", "1.0"]),
    ] {
        let ticks = Ticks::new(most, 4);
        let said: Vec<String> = ticks.values().map(|value| ticks.label(value)).collect();
        assert_eq!(said, labels, "{most}");
        assert!(most.is_nan() || ticks.end() >= most);
    }
}

#[test]
fn a_line_of_many_points_keeps_its_peaks_and_stays_small() {
    let frame = Frame {
        top: 0,
        x_end: 60.0,
        y_end: 100.0,
    };
    let points: Vec<(f64, f64)> = (0..100_000)
        .map(|n| {
            (
                f64::from(n) * 60.0 / 1e5,
                if n == 54_321 { 100.0 } else { 10.0 },
            )
        })
        .collect();
    let pixels = frame.pixels(&points);
    assert!(pixels.len() < 4 * PLOT.0 as usize, "{}", pixels.len());
    assert_eq!(
        pixels.iter().map(|pixel| pixel.1).min(),
        Some(0),
        "the peak"
    );
    assert_eq!(frame.pixels(&[(1.0, f64::NAN)]), []);
    let corner = frame.pixels(&[(1e300, -1e300)]);
    assert_eq!(corner, [(LEFT + PLOT.0, PLOT.1)], "no value is outside");
}

#[test]
fn the_eighth_line_has_the_first_colour_and_dashes() {
    let whole = [(0, 0), (100, 0)];
    assert_eq!(dashes(&whole, f64::INFINITY), [whole.to_vec()]);
    let parts = dashes(&whole, 10.0);
    assert_eq!(parts.len(), 5);
    assert_eq!(parts[0], [(0, 0), (10, 0)]);
    assert_eq!(parts[1], [(20, 0), (30, 0)]);
    // A corner belongs to the dash it lies in.
    let corner = dashes(&[(0, 0), (5, 0), (5, 50)], 10.0);
    assert_eq!(corner[0], [(0, 0), (5, 0), (5, 5)]);
}

#[test]
fn long_names_in_the_legend_stay_apart() {
    let [one, two] =
        ["1", "2"].map(|n| middle_out(&format!("a flow with a long name no {n}"), NAME));
    assert_ne!(one, two);
    assert_eq!(one.chars().count(), NAME);
    assert_eq!(middle_out("short", NAME), "short");
}
