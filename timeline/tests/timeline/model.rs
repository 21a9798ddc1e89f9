//! Every history of appends, purges, kills and power cuts equals a map in memory.

use std::collections::BTreeMap;

use media::Seq;
use proptest::prelude::*;

use crate::{
    compact::{open, purge},
    disk::SimDisk,
    support::{description, events, found},
};
use fastrand::Rng;

#[derive(Clone, Debug)]
enum Step {
    Append { run: u8, count: u8, bytes: u16 },
    Purge { run: u8 },
    Kill,
    PowerCut { after: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let append = (0..6u8, 1..6u8, 0..900u16);
    prop_oneof![
        6 => append.prop_map(|(run, count, bytes)| Step::Append { run, count, bytes }),
        2 => (0..6u8).prop_map(|run| Step::Purge { run }),
        1 => Just(Step::Kill),
        1 => (0..20u8).prop_map(|after| Step::PowerCut { after }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_history_equals_a_model_in_memory(
        steps in prop::collection::vec(step(), 1..60),
        seed in 0..u64::MAX / 2,
    ) {
        let mut random = Rng::with_seed(seed);
        let mut disk = SimDisk::default();
        let mut log = open(&disk).unwrap();
        let mut model: BTreeMap<u64, (u8, String)> = BTreeMap::new();
        let mut next = 1;
        for step in steps {
            match step {
                Step::Append { run, count, bytes } => {
                    let text = "x".repeat(usize::from(bytes));
                    let batch = (0..count).map(|_| found(run, &text)).collect();
                    for appended in log.append_wait(batch).unwrap() {
                        prop_assert_eq!(appended.seq, Seq(next));
                        model.insert(next, (run, text.clone()));
                        next += 1;
                    }
                }
                Step::Purge { run } => {
                    purge(&log, &[run]).unwrap();
                    model.retain(|_, event| event.0 != run);
                }
                Step::Kill => {
                    disk = disk.after_kill();
                    log = open(&disk).unwrap();
                }
                Step::PowerCut { after } => {
                    // During a purge, which the run's next purge completes.
                    disk.cut_power_after(u64::from(after));
                    let run = 5;
                    drop(purge(&log, &[run]));
                    disk = disk.after_power_cut(&mut random);
                    log = open(&disk).unwrap();
                    purge(&log, &[run]).unwrap();
                    model.retain(|_, event| event.0 != run);
                }
            }
            let left: BTreeMap<u64, (u8, String)> = events(&log)
                .iter()
                .map(|event| (event.head.seq.0, (event.head.run.as_bytes()[0], description(event))))
                .collect();
            prop_assert_eq!(&left, &model);
            prop_assert_eq!(log.head(), Seq(next - 1));
        }
    }
}
