//! Operator's view of the log: verify every byte, print every event, cut at damage.
//!
//! `verify` and `cat` change nothing and may run beside a server. `repair` is the only code that gives up
//! events, on request only, and keeps the removed bytes in separate files.

use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{ErrorKind, Seq, WallTime};

use crate::{
    Result, StoredEvent, StreamedEvent, TimelineError, footer,
    index::LogIndex,
    journal::{self, Journal, JournalHeader, JournalSizes, SeqRange},
    lock::{self, LogLock},
    record::JournalRecord,
    recovery::{self, TornTail},
    signal_column::ColumnDir,
    storage::{DirStorage, Storage},
};

/// Findings of [`verify`].
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Number of events read and found intact, also after damage.
    pub events: u64,
    /// Number of journal files read.
    pub files: u64,
    /// Number of column files read and found intact.
    pub columns: u64,
    /// Number of sealed files without an intact footer; opening the log rebuilds it.
    pub footers_missing: u64,
    /// Remains of a batch that was never acknowledged; opening the log cuts them.
    pub torn: Option<TornTail>,
    /// All damage found, once for damaged batches that follow each other; empty for an intact log.
    pub problems: Vec<TimelineError>,
}

/// Events that [`repair`] would remove.
#[derive(Debug)]
pub struct RepairPlan {
    /// Damage at which the log would be cut.
    pub damage: TimelineError,
    /// Number of the first event after the cut.
    pub from: Seq,
    /// Number of events after the cut that are readable.
    pub readable: u64,
}

/// Results of [`repair`].
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Number of events that are left.
    pub events: u64,
    /// Damage at which the log was cut; `None` if there was none.
    pub damage: Option<TimelineError>,
    /// Bytes that were cut, and the files that keep them.
    pub removed: Vec<CutBytes>,
}

/// Bytes that [`repair`] removed from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutBytes {
    /// Journal file that held the bytes.
    pub from: PathBuf,
    /// Offset of the bytes in it.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// File that holds the removed bytes.
    pub kept_in: PathBuf,
}

/// Reads and checks every acknowledged byte of the log in `dir`.
pub fn verify(dir: &Path) -> Result<VerifyReport> {
    let mut before = Vec::new();
    loop {
        let report = verify_once(dir)?;
        let told: Vec<String> = report.problems.iter().map(TimelineError::to_string).collect();
        // Beside a live writer a file may be read half written, but not twice in the same place.
        if told == before {
            return Ok(report);
        }
        before = told;
    }
}

fn verify_once(dir: &Path) -> Result<VerifyReport> {
    let disk = DirStorage::read_only(&dir.join("journal"));
    let columns = ColumnDir::at(&dir.join("columns"));
    let files = recovery::list(&disk)?.files;
    let mut report = VerifyReport::default();
    report.problems.extend(lock::check_journal(dir, files.len()).err());
    let mut head = Seq(0);
    for (position, first) in files.iter().enumerate() {
        let successor = files.get(position + 1).copied();
        // Damage that ends the check of its file does not end that of the next, which has its own numbers.
        let sound = verify_file(&disk, *first, successor, head, &columns, &mut report);
        report.problems.extend(sound.err());
        head = Seq(successor.map_or(0, |next| next.0 - 1));
    }
    Ok(report)
}

/// Checks one file, which should begin after `head`.
fn verify_file(
    disk: &dyn Storage,
    first: Seq,
    successor: Option<Seq>,
    head: Seq,
    columns: &ColumnDir,
    report: &mut VerifyReport,
) -> Result<()> {
    report.files += 1;
    report.problems.extend(recovery::check_continues(disk, first, head).err());
    let file = recovery::read_file(disk, first)?;
    let mut references = Vec::new();
    let mut visit = |offset, record: &JournalRecord<'_>| match record.payload() {
        Ok(payload) => {
            report.events += 1;
            references.extend(payload.column);
        }
        Err(what) => report.problems.push(file.damaged(offset, what)),
    };
    let mut damaged = Vec::new();
    let mut end = recovery::scan(&file, &mut visit);
    while let Some(damage) = end.damage.take() {
        damaged.push(damage);
        let Some(further) = recovery::scan_on(&file, &end, &mut visit) else { break };
        end = further;
    }
    let is_damaged = !damaged.is_empty();
    report.problems.append(&mut damaged);
    for column in references {
        match columns.verify(&column) {
            Ok(()) => report.columns += 1,
            Err(problem) => report.problems.push(problem),
        }
    }
    match successor {
        Some(successor) => {
            end.continued_by(&file, successor)?;
            if is_damaged {
                return Ok(());
            }
            let mut index = LogIndex::default();
            recovery::scan_into(&file, &mut index).sound()?;
            let footer = recovery::read_footer(disk, first)?;
            let intact = footer.is_some_and(|(_, bytes)| bytes == footer::build(&index, 0));
            report.footers_missing += u64::from(!intact);
        }
        None => {
            report.torn = file.torn(end.sound()?.position);
            recovery::check_not_sealed(disk, &file)?;
        }
    }
    Ok(())
}

/// Calls `visit` for every readable event of the log in `dir`, in order, until `Break`. Returns the first damage,
/// behind which it goes on.
pub fn cat(dir: &Path, visit: impl FnMut(StoredEvent) -> ControlFlow<()>) -> Result<()> {
    let disk = DirStorage::read_only(&dir.join("journal"));
    let columns = ColumnDir::at(&dir.join("columns"));
    let mut events = Events { disk, columns, visited: Seq(0), visit };
    // Beside a live writer only what is found twice is damage.
    let read = recovery::tolerate_live_writer(|| events.read(false));
    if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::DataLoss) {
        events.read(true)?;
    }
    read
}

/// Events of a log that are given to `visit`, each once.
struct Events<V> {
    disk: DirStorage,
    columns: ColumnDir,
    /// Last event that was given.
    visited: Seq,
    visit: V,
}

impl<V: FnMut(StoredEvent) -> ControlFlow<()>> Events<V> {
    /// Reads until `Break` or, unless `past_damage`, until damage.
    fn read(&mut self, past_damage: bool) -> Result<()> {
        let files = recovery::list(&self.disk)?.files;
        let mut head = Seq(0);
        for (position, first) in files.iter().enumerate() {
            if !past_damage {
                recovery::check_continues(&self.disk, *first, head)?;
            }
            let successor = files.get(position + 1);
            if let Some(next) = successor.filter(|next| next.0 <= self.visited.0 + 1) {
                head = Seq(next.0 - 1);
                continue;
            }
            match self.read_file(*first, past_damage) {
                Ok(ControlFlow::Continue(last)) => head = last,
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) if past_damage && error.kind() == ErrorKind::DataLoss => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads one file, and returns its last event.
    fn read_file(&mut self, first: Seq, past_damage: bool) -> Result<ControlFlow<(), Seq>> {
        let file = recovery::read_file(&self.disk, first)?;
        let mut outcome = Ok(ControlFlow::Continue(()));
        let mut each = |offset, record: &JournalRecord<'_>| {
            if !matches!(outcome, Ok(ControlFlow::Continue(()))) || record.head.seq <= self.visited
            {
                return;
            }
            let payload = record.payload().map_err(|what| file.damaged(offset, what));
            let event = payload.and_then(|payload| {
                StreamedEvent::new(&self.columns, record.head, payload).whole()
            });
            outcome = match event {
                Ok(event) => {
                    self.visited = event.head.seq;
                    Ok((self.visit)(event))
                }
                Err(error) if past_damage && error.kind() == ErrorKind::DataLoss => return,
                Err(error) => Err(error),
            };
        };
        let mut end = recovery::scan(&file, &mut each);
        while past_damage && end.damage.is_some() {
            let Some(further) = recovery::scan_on(&file, &end, &mut each) else { break };
            end = further;
        }
        if outcome?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(Seq(end.sound()?.next.0 - 1)))
    }
}

/// Returns what [`repair`] would remove from the log in `dir`; `None` if nothing is damaged. Changes nothing.
pub fn plan_repair(dir: &Path) -> Result<Option<RepairPlan>> {
    let disk = DirStorage::read_only(&dir.join("journal"));
    let files = recovery::list(&disk)?.files;
    let Some(found) = first_damage(&disk, &files)? else { return Ok(None) };
    let readable = verify_once(dir)?.events.saturating_sub(found.kept);
    Ok(Some(RepairPlan { damage: found.damage, from: Seq(found.head.0 + 1), readable }))
}

/// Cuts the log in `dir` at its first damage and keeps the removed bytes in files beside it.
///
/// Later files are removed too, because their events would follow a gap.
pub fn repair(dir: &Path) -> Result<RepairReport> {
    let journal_dir = dir.join("journal");
    // Only an existing log is locked and opened, because both would create one.
    let files = recovery::list(&DirStorage::read_only(&journal_dir))?.files;
    let _lock = LogLock::take(dir, files.len())?;
    let io = TimelineError::io("open the journal", &journal_dir);
    let disk: Arc<dyn Storage> = Arc::new(DirStorage::create(&journal_dir).map_err(io)?);
    let files = recovery::list(&*disk)?.files;
    let mut report = RepairReport::default();
    if let Some(found) = first_damage(&*disk, &files)? {
        cut(&*disk, files[found.position], found.end, found.shortened, &mut report)?;
        for later in &files[found.position + 1..] {
            cut(&*disk, *later, 0, None, &mut report)?;
        }
        create_empty(&disk, Seq(found.head.0 + 1))?;
        report.damage = Some(found.damage);
    }
    report.events = recovery::recover(&*disk)?.recovery.events;
    Ok(report)
}

/// First damage of a log, and the intact part before it.
struct FirstDamage {
    damage: TimelineError,
    /// Position of the damaged file in the list of files.
    position: usize,
    /// End of the intact batches of that file.
    end: u64,
    /// Last number that the intact batches cover.
    head: Seq,
    /// Number of events in them, and in the files before.
    kept: u64,
    /// Header with that range, for a compacted file.
    shortened: Option<JournalHeader>,
}

/// Reads `files` up to the first damage; returns `None` if all are intact.
fn first_damage(disk: &dyn Storage, files: &[Seq]) -> Result<Option<FirstDamage>> {
    let (mut head, mut kept) = (Seq(0), 0);
    for (position, first) in files.iter().enumerate() {
        let read = recovery::check_continues(disk, *first, head)
            .and_then(|()| recovery::read_file(disk, *first));
        let file = match read {
            Err(damage @ TimelineError::Damaged { .. }) => {
                let (end, shortened) = (0, None);
                return Ok(Some(FirstDamage { damage, position, end, head, kept, shortened }));
            }
            read => read?,
        };
        let mut count = 0;
        let scanned = recovery::scan(&file, |_, _| count += 1);
        let (end, next) = (scanned.position as u64, scanned.next);
        (head, kept) = (Seq(next.0 - 1), kept + count);
        let checked = match files.get(position + 1) {
            Some(successor) => scanned.continued_by(&file, *successor).map(drop),
            None => scanned.sound().and_then(|_| recovery::check_not_sealed(disk, &file)),
        };
        match checked {
            Err(damage @ TimelineError::Damaged { .. }) => {
                let span = file.header.span.map(|_| SeqRange { next, count });
                let shortened = span.map(|span| JournalHeader { span: Some(span), ..file.header });
                return Ok(Some(FirstDamage { damage, position, end, head, kept, shortened }));
            }
            checked => checked?,
        }
    }
    Ok(None)
}

/// Moves all bytes from `offset` on out of the file of `first`, durably.
///
/// `shortened` is the new header of a compacted file that ends earlier than its old header says.
fn cut(
    disk: &dyn Storage,
    first: Seq,
    offset: u64,
    shortened: Option<JournalHeader>,
    report: &mut RepairReport,
) -> Result<()> {
    let name = journal::file_name(first);
    let taken = disk.list().map_err(TimelineError::io("list the journal", disk.path("")))?;
    let kept = (1..)
        .map(|number| format!("{name}.removed-{number}"))
        .find(|kept| !taken.contains(kept))
        .expect("some number is free");
    let io = |what| TimelineError::io(what, disk.path(&name));
    let file = disk.open(&name).map_err(io("open a journal file"))?;
    let size = file.size().map_err(io("measure a journal file"))?;
    let mut bytes = vec![0; size.saturating_sub(offset) as usize];
    file.read_exact_at(&mut bytes, offset).map_err(io("read a journal file"))?;
    let keep = || -> io::Result<()> {
        let side = disk.create(&kept)?;
        side.write_all_at(&bytes, 0)?;
        side.sync()?;
        disk.sync_names()?;
        if offset == 0 {
            disk.remove(&name)?;
            return disk.sync_names();
        }
        if let Some(shortened) = shortened {
            file.write_all_at(&shortened.bytes(), 0)?;
        }
        file.set_size(offset)?;
        file.sync()
    };
    keep().map_err(io("move damaged bytes aside"))?;
    let (from, kept_in) = (disk.path(&name), disk.path(&kept));
    report.removed.push(CutBytes { from, offset, bytes: bytes.len() as u64, kept_in });
    Ok(())
}

/// Lets the log continue at `next` in a new file, because the file before may be sealed.
fn create_empty(disk: &Arc<dyn Storage>, next: Seq) -> Result<()> {
    let files = recovery::list(&**disk)?.files;
    let before = files.last().map(|last| recovery::read_file(&**disk, *last)).transpose()?;
    if before.as_ref().is_some_and(|file| file.header.first == next) {
        return Ok(());
    }
    let mut base = WallTime { epoch_ms: 0 };
    if let Some(file) = before {
        base = file.header.base;
        recovery::scan(&file, |_, record| base = base.max(record.head.at)).sound()?;
    }
    let sizes = JournalSizes { file: 0, grow: 1, spare: 0 };
    Journal::create(disk.clone(), sizes, JournalHeader::new(next, base)).map(drop)
}
