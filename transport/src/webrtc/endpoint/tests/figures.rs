//! Benchmarks of many sessions, a flood, and session churn, as ignored tests that print results.
//!
//! The receiver is the example `webrtc_receive` in a process of its own, in its release build if available,
//! to measure its time and memory alone. The publishers are simulated here: they send in real time,
//! retransmit on NACK, and send keyframes on request.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, UdpSocket},
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{Client, Publisher, garbage};
use crate::webrtc::stun::tests as stun;

/// Pictures per second, and bytes of each: 1.5 Mb/s.
const RATE: u32 = 30;
const PICTURE_BYTES: usize = 6250;
/// Packets that a publisher can retransmit.
const KEPT: usize = 512;

struct Receiving {
    child: Child,
    out: BufReader<ChildStdout>,
}

/// Counts that the receiver prints at its end.
#[derive(Debug)]
struct Ended {
    packets: u64,
    units: u64,
    lost: u64,
    text: String,
}

/// Resources of the receiver as reported by the kernel.
struct Held {
    resident_bytes: i64,
    descriptors: usize,
    threads: usize,
}

impl Receiving {
    fn start() -> Receiving {
        let tests = std::env::current_exe().expect("a path");
        let profile = tests.parent().and_then(|deps| deps.parent()).expect("a folder");
        let release = profile.with_file_name("release").join("examples/webrtc_receive");
        let own = profile.join("examples/webrtc_receive");
        let program = if release.exists() { release } else { own };
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the example is built: cargo build --release --example webrtc_receive");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Receiving { child, out }
    }

    fn answer(&mut self, offer: &str) -> String {
        self.say(offer);
        let mut answer = String::new();
        while !answer.ends_with("\n.\r\n") {
            assert!(self.out.read_line(&mut answer).expect("an answer") > 0, "it goes on");
        }
        answer
    }

    fn say(&mut self, what: &str) {
        let into = self.child.stdin.as_mut().expect("piped");
        writeln!(into, "{what}.").expect("taken");
        into.flush().expect("taken");
    }

    /// Closes all sessions and waits for the acknowledgement.
    fn close_all(&mut self) {
        self.say("close\n");
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a word");
        assert_eq!(line.trim(), "closed");
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).expect("Linux")
    }

    /// Returns the CPU time; Linux counts in hundredths of a second.
    fn busy(&self) -> Duration {
        let stat = self.file("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split(' ').collect();
        let ticks =
            fields[12].parse::<u64>().expect("user") + fields[13].parse::<u64>().expect("system");
        Duration::from_millis(ticks * 10)
    }

    fn held(&self) -> Held {
        let status = self.file("status");
        let number = |name: &str| -> i64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("Linux");
        Held {
            resident_bytes: number("RssAnon:") * 1024,
            descriptors: files.count(),
            threads: number("Threads:") as usize,
        }
    }

    fn end(mut self) -> Ended {
        // Packets in flight arrive, and units that wait for their marker are output.
        std::thread::sleep(Duration::from_millis(300));
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("counts");
        self.child.wait().expect("ended");
        let last = text.lines().last().expect("a line of totals");
        let numbers: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [packets, units, lost] = numbers[..] else { panic!("{text}") };
        Ended { packets, units, lost, text }
    }
}

/// Publisher whose answer comes from another process.
struct Loaded {
    client: Client,
    socket: UdpSocket,
    kept: VecDeque<Vec<u8>>,
    keyframes_sent: usize,
    pictures: u64,
    packets: u64,
    repeated: u64,
}

impl Loaded {
    fn connect(receiving: &mut Receiving) -> Loaded {
        let mut publisher = Publisher::new();
        publisher.accept(&receiving.answer(&publisher.client.offer()));
        publisher.connect();
        let Publisher { client, socket, .. } = publisher;
        socket.set_nonblocking(true).expect("an open socket");
        let kept = VecDeque::new();
        Loaded { client, socket, kept, keyframes_sent: 0, pictures: 0, packets: 0, repeated: 0 }
    }

    /// Sends one picture, and the retransmissions requested since the previous one.
    fn picture(&mut self) {
        let mut buffer = [0u8; 2048];
        while let Ok(bytes) = self.socket.recv(&mut buffer) {
            self.client.read(&buffer[..bytes], Instant::now());
        }
        for missing in std::mem::take(&mut self.client.missing) {
            let sequence = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
            if let Some(packet) = self.kept.iter().find(|packet| sequence(packet) == missing) {
                self.repeated += u64::from(self.socket.send(packet).is_ok());
            }
        }
        let is_key = self.pictures == 0 || self.client.keyframes_asked > self.keyframes_sent;
        self.keyframes_sent = self.client.keyframes_asked;
        self.pictures += 1;
        for packet in self.client.picture(is_key, PICTURE_BYTES, 3000) {
            self.packets += u64::from(self.socket.send(&packet).is_ok());
            self.kept.push_back(packet);
        }
        let excess = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..excess);
    }
}

/// Sends pictures of all publishers in turn, spread evenly over each thirtieth of a second.
fn send_all(publishers: &mut [Loaded], start: Instant, seconds: u32) {
    let count = publishers.len() as u32;
    for picture in 0..RATE * seconds {
        for (at, publisher) in publishers.iter_mut().enumerate() {
            let due = Duration::from_secs(1) / RATE * picture
                + Duration::from_secs(1) / RATE * at as u32 / count;
            if let Some(wait) = due.checked_sub(start.elapsed()) {
                std::thread::sleep(wait);
            }
            publisher.picture();
        }
    }
    // The last losses are still requested.
    std::thread::sleep(Duration::from_millis(100));
    publishers.iter_mut().for_each(Loaded::picture);
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").expect("Linux");
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// Prints the cost of sessions, transport only.
#[test]
#[ignore = "prints figures and takes a minute of a quiet machine"]
fn figures_of_many_sessions() {
    const SECONDS: u32 = 10;
    for sessions in [100usize, 500] {
        let mut receiving = Receiving::start();
        let before = receiving.held().resident_bytes;
        let mut publishers: Vec<Loaded> =
            (0..sessions).map(|_| Loaded::connect(&mut receiving)).collect();
        let connected = receiving.held().resident_bytes;
        let connecting = receiving.busy();
        let start = Instant::now();
        let senders = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 8);
        std::thread::scope(|scope| {
            for share in publishers.chunks_mut(sessions.div_ceil(senders)) {
                scope.spawn(move || send_all(share, start, SECONDS));
            }
        });
        let took = start.elapsed();
        let busy = receiving.busy() - connecting;
        let memory = receiving.held().resident_bytes;
        let sum = |of: fn(&Loaded) -> u64| publishers.iter().map(of).sum::<u64>();
        let (pictures, packets) = (sum(|one| one.pictures), sum(|one| one.packets));
        let repeated = sum(|one| one.repeated);
        let ended = receiving.end();
        let cores = busy.as_secs_f64() / took.as_secs_f64();
        println!(
            "{sessions} sessions for {took:.1?} at load {}: {cores:.2} cores, {:.0} packets/s of \
             {:.0} sent, {} of {pictures} pictures, {} packets lost, {repeated} repeated; \
             connecting {:?} each, {} bytes a connected session, {} with media; {:.1} us a packet\n{}",
            load(),
            ended.packets as f64 / took.as_secs_f64(),
            (packets + repeated) as f64 / took.as_secs_f64(),
            ended.units,
            ended.lost,
            connecting / sessions as u32,
            (connected - before) / sessions as i64,
            (memory - before) / sessions as i64,
            1e6 * busy.as_secs_f64() / ended.packets as f64,
            ended.text,
        );
    }
}

/// Returns well-formed checks for unknown users.
fn checks() -> Vec<Vec<u8>> {
    let check = |user| stun::check(&format!("gone{user}:theirs"), "password", &[stun::CONTROLLING]);
    (0..8).map(check).collect()
}

/// Prints the cost of a flood to eight sessions: none, garbage, checks of unknown users, in turn.
#[test]
#[ignore = "prints figures and takes a minute of a quiet machine"]
fn figures_of_a_flood() {
    const SECONDS: u32 = 8;
    const A_SECOND: u64 = 100_000;
    for round in 0..3 {
        for (what, datagrams) in
            [("nothing", Vec::new()), ("garbage", garbage()), ("checks", checks())]
        {
            let mut receiving = Receiving::start();
            let mut publishers: Vec<Loaded> =
                (0..8).map(|_| Loaded::connect(&mut receiving)).collect();
            let to = publishers[0].client.candidates[0];
            let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(datagrams.is_empty()));
            let (start, busy) = (Instant::now(), receiving.busy());
            std::thread::scope(|scope| {
                scope.spawn(|| flood(to, &datagrams, A_SECOND, (&sent, &is_over)));
                send_all(&mut publishers, start, SECONDS);
                is_over.store(true, Relaxed);
            });
            let took = start.elapsed();
            let busy = receiving.busy() - busy;
            let pictures: u64 = publishers.iter().map(|one| one.pictures).sum();
            let ended = receiving.end();
            println!(
                "round {round}, {:.0} packets/s of {what} at load {}: {} of {pictures} pictures, \
                 {:.2} cores\n{}",
                sent.load(Relaxed) as f64 / took.as_secs_f64(),
                load(),
                ended.units,
                busy.as_secs_f64() / took.as_secs_f64(),
                ended.text,
            );
        }
    }
}

/// Sends `kinds` in turn, in bursts of one millisecond.
fn flood(
    to: SocketAddr,
    kinds: &[Vec<u8>],
    a_second: u64,
    (sent, is_over): (&AtomicU64, &AtomicBool),
) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let start = Instant::now();
    let mut tried = 0;
    while !is_over.load(Relaxed) {
        while tried < a_second * start.elapsed().as_micros() as u64 / 1_000_000 {
            let garbage = &kinds[tried as usize % kinds.len()];
            sent.fetch_add(u64::from(socket.send_to(garbage, to).is_ok()), Relaxed);
            tried += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Prints the resources left after opening and closing sessions.
#[test]
#[ignore = "prints figures and takes a minute"]
fn figures_of_coming_and_going() {
    let mut receiving = Receiving::start();
    let print = |what: &str, receiving: &Receiving| {
        let Held { resident_bytes, descriptors, threads } = receiving.held();
        println!(
            "{what}: {resident_bytes} bytes, {descriptors} descriptors, {threads} threads at load {}",
            load()
        );
    };
    // A first session loads all parts of the receiver.
    drop(Loaded::connect(&mut receiving));
    receiving.close_all();
    print("after the first", &receiving);
    for round in 0..3 {
        for _ in 0..1000 {
            drop(Loaded::connect(&mut receiving));
            receiving.close_all();
        }
        print(&format!("after {} connected and left", 1000 * (round + 1)), &receiving);
    }
}
