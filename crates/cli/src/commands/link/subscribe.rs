//! `towline link sub`: what others send, as JSON objects on stdout.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;
use towline::identity::KeyPin;
use towline::link::{Arrival, Delivery, Downlink, LiveFilter, Record};
use towline_link::RangeSet;

use super::ends::listener;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::reachable;
use crate::printer::Printer;
use crate::url::{LINK_PORT, parse_key_pin};

/// Streams that are remembered, each a sender's spool; the one heard of first goes.
const MAX_STREAMS: usize = 1_024;

/// Arguments of `towline link sub`.
#[derive(Args)]
pub(crate) struct SubArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([127, 0, 0, 1], LINK_PORT)))]
    listen: SocketAddr,
    /// Let in senders with this key, as their `towline link keygen` prints it (repeatable); all, if none is given
    #[arg(long, value_name = "PIN", value_parser = parse_key_pin)]
    from: Vec<KeyPin>,
    /// Print what is, not what was: no value after a newer one, and nothing that was kept back
    #[arg(long)]
    live: bool,
    /// Print {"t":milliseconds since 1970,"from":name,"seq":number,"delta":{…}}
    #[arg(long)]
    with_times: bool,
    /// Take links over TLS and TCP at the same port, too
    #[arg(long)]
    tls: bool,
}

/// What is printed, and what was.
struct Printing {
    live: bool,
    with_times: bool,
    streams: Mutex<Streams>,
}

#[derive(Default)]
struct Streams {
    known: HashMap<(String, u64), Stream>,
    order: Vec<(String, u64)>,
}

#[derive(Default)]
struct Stream {
    printed: RangeSet,
    filter: LiveFilter,
}

impl SubArgs {
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let mut interrupt = Interrupt::of_a_server(printer);
        let (mut listener, key) = listener(self.listen, &self.from, self.tls, printer).await?;
        let address = listener.endpoint().local_addr();
        let url = format!("towline://{}#{key}", reachable(address));
        printer.note(format_args!("listening {address}"));
        printer.note(format_args!("  towline link pub '{url}' FILE.jsonl"));
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": address.to_string(),
            "url": url,
        }));
        let printing = Arc::new(Printing {
            live: self.live,
            with_times: self.with_times,
            streams: Mutex::default(),
        });
        let mut links = JoinSet::new();
        loop {
            tokio::select! {
                link = listener.accept() => match link {
                    Some(link) => {
                        links.spawn(serve(link, Arc::clone(&printing)));
                    }
                    None => return Err(Failure::new(Exit::Other, "the socket is gone")),
                },
                Some(ended) = links.join_next() => {
                    if let Ok(Err(why)) = ended {
                        printer.note(format_args!("towline: {why}"));
                    }
                }
                () = interrupt.wait() => break,
            }
        }
        listener.endpoint().close(0, b"");
        listener.endpoint().wait_idle().await;
        Ok(Exit::Interrupted)
    }
}

/// Prints what a sender sends, to its end; says why it ended where that is news.
async fn serve(mut link: Downlink, printing: Arc<Printing>) -> Result<(), String> {
    let mut of = None;
    loop {
        match link.next().await {
            Ok(Arrival::Hello(hello)) => {
                let key = (hello.name, hello.stream);
                link.accept(printing.begin(&key));
                of = Some(key);
            }
            Ok(Arrival::Delivery(delivery)) => {
                let Some(of) = &of else { continue };
                if printing.print(of, &delivery).is_err() {
                    return Err("stdout is closed: nobody reads what is received".to_owned());
                }
                for seqs in delivery.new {
                    link.on_durable(seqs);
                }
            }
            Ok(Arrival::Forgotten(seqs)) => {
                let Some(of) = &of else { continue };
                printing.forget(of, seqs);
            }
            Err(error) => {
                tracing::info!("a link ended: {error}");
                return Ok(());
            }
        }
    }
}

impl Printing {
    fn with<T>(&self, of: &(String, u64), act: impl FnOnce(&mut Stream) -> T) -> T {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.known.contains_key(of) {
            if streams.order.len() == MAX_STREAMS {
                let first = streams.order.remove(0);
                streams.known.remove(&first);
            }
            streams.order.push(of.clone());
        }
        act(streams.known.entry(of.clone()).or_default())
    }

    fn begin(&self, of: &(String, u64)) -> RangeSet {
        self.with(of, |stream| stream.printed.clone())
    }

    fn forget(&self, of: &(String, u64), seqs: std::ops::Range<u64>) {
        self.with(of, |stream| stream.printed.insert(seqs));
    }

    fn print(&self, of: &(String, u64), delivery: &Delivery) -> io::Result<()> {
        let mut text = Vec::new();
        self.with(of, |stream| {
            // Two connections of one sender may have it.
            let is_new = |seq| !stream.printed.contains(seq);
            if self.live {
                for (seq, record) in delivery.live().filter(|(seq, _)| is_new(*seq)) {
                    if let Some(fresh) = stream.filter.filter(seq, &record) {
                        self.line(of, seq, &fresh, &mut text);
                    }
                }
            } else {
                for (seq, record) in delivery.entries().filter(|(seq, _)| is_new(*seq)) {
                    self.line(of, seq, record, &mut text);
                }
            }
            for seqs in &delivery.new {
                stream.printed.insert(seqs.clone());
            }
        });
        let mut out = io::stdout().lock();
        out.write_all(&text)?;
        out.flush()
    }

    fn line(&self, (name, _): &(String, u64), seq: u64, record: &Record, text: &mut Vec<u8>) {
        if self.with_times {
            let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64() * 1e3;
            let name = json!(name);
            let head = format!("{{\"t\":{now:.3},\"from\":{name},\"seq\":{seq},\"delta\":");
            text.extend_from_slice(head.as_bytes());
        }
        record.write_json(text);
        if self.with_times {
            text.push(b'}');
        }
        text.push(b'\n');
    }
}
