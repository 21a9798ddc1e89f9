//! What sessions cost: a receiver in a process of its own and publishers in this one.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use crate::webrtc::client::Client;

/// The receiver in a process of its own, so that its time and memory are its own.
struct Receiving {
    child: std::process::Child,
    out: std::io::BufReader<std::process::ChildStdout>,
}

impl Receiving {
    fn start() -> Receiving {
        let tests = std::env::current_exe().expect("a path");
        let example = tests.parent().and_then(|deps| deps.parent()).expect("a folder");
        let mut child = std::process::Command::new(example.join("examples/webrtc_receive"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the example is built: cargo build --example webrtc_receive");
        let out = std::io::BufReader::new(child.stdout.take().expect("piped"));
        Receiving { child, out }
    }

    fn answer(&mut self, offer: &str) -> String {
        use std::io::{BufRead as _, Write as _};
        let into = self.child.stdin.as_mut().expect("piped");
        writeln!(into, "{offer}.").expect("taken");
        into.flush().expect("taken");
        let mut answer = String::new();
        while !answer.ends_with("\n.\r\n") {
            assert!(self.out.read_line(&mut answer).expect("an answer") > 0, "it goes on");
        }
        answer
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).expect("Linux")
    }

    /// Time on a core, in hundredths of a second as every Linux counts it.
    fn busy(&self) -> Duration {
        let stat = self.file("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split(' ').collect();
        let ticks =
            fields[12].parse::<u64>().expect("user") + fields[13].parse::<u64>().expect("system");
        Duration::from_millis(ticks * 10)
    }

    fn resident_bytes(&self) -> i64 {
        let status = self.file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux");
        line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") * 1024
    }
}

/// A publisher of the load, which takes its answer from another process.
struct Loaded {
    client: Client,
    socket: UdpSocket,
}

impl Loaded {
    fn connect(receiving: &mut Receiving) -> Loaded {
        let mut client = Client::new("theirs", Instant::now());
        client.accept(&receiving.answer(&client.offer()));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(client.candidates[0]).expect("connected");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        socket.send(&client.check(true)).expect("sent");
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut buffer = [0u8; 2048];
        while !client.has_keys() {
            assert!(Instant::now() < deadline, "keys within a minute");
            for datagram in client.send() {
                socket.send(&datagram).expect("sent");
            }
            if let Ok(bytes) = socket.recv(&mut buffer) {
                client.read(&buffer[..bytes], Instant::now());
            }
            client.advance(Instant::now());
        }
        Loaded { client, socket }
    }
}

/// What sessions cost, transport only: 1.5 Mb/s each, 30 pictures of 6,250 bytes a second.
#[test]
#[ignore = "prints figures and takes a minute of a quiet machine"]
fn figures_of_many_sessions() {
    const SECONDS: u32 = 10;
    for sessions in [100usize, 500] {
        let mut receiving = Receiving::start();
        let before = receiving.resident_bytes();
        let mut publishers: Vec<Loaded> =
            (0..sessions).map(|_| Loaded::connect(&mut receiving)).collect();
        let connected = receiving.resident_bytes();
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
        let memory = receiving.resident_bytes();
        drop(receiving.child.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut receiving.out, &mut rest).expect("counts");
        receiving.child.wait().expect("ended");
        println!(
            "{sessions} sessions for {took:?}: {busy:?} on a core ({:.1} %), connecting {:?} each, \
             {} bytes a connected session, {} with media\n{rest}",
            100.0 * busy.as_secs_f64() / took.as_secs_f64(),
            connecting / sessions as u32,
            (connected - before) / sessions as i64,
            (memory - before) / sessions as i64,
        );
    }
}

/// Sends pictures of every publisher in turn, each thirtieth of a second spread over all of them.
fn send_all(publishers: &mut [Loaded], start: Instant, seconds: u32) {
    let count = publishers.len() as u32;
    for picture in 0..30 * seconds {
        for (at, publisher) in publishers.iter_mut().enumerate() {
            let due = Duration::from_secs(1) / 30 * picture
                + Duration::from_secs(1) / 30 * at as u32 / count;
            if let Some(wait) = due.checked_sub(start.elapsed()) {
                std::thread::sleep(wait);
            }
            for packet in publisher.client.picture(picture % 300 == 0, 6250, 3000) {
                publisher.socket.send(&packet).expect("sent");
            }
        }
    }
}
