//! Stills scaled down in a worker: bytes that are no still.

use clips::pick_one;

use crate::support::{alone, run, spec, supervisor, with};

#[test]
fn what_is_no_still_is_an_error_and_not_more() {
    let _alone = alone();
    let path = pick_one("bikes.mp4", "surv_car-detection.mp4");
    let heard = run(with(spec(&path), |it| it.max_frames = 1)).expect("a result");
    let still = heard.stills.into_iter().next().expect("a still").1.jpeg;
    assert!(supervisor().shrink(still.clone(), 64).is_ok());
    let mut cut = still.clone();
    cut.truncate(still.len() / 2);
    let mut noise = still.clone();
    let end = noise.len() - 2;
    noise[end / 2..end].fill(0xff);
    for (name, bytes) in [
        ("nothing", Vec::new()),
        ("text", b"GIF89a".to_vec()),
        ("header", still[..20].to_vec()),
        ("cut", cut),
        ("noise", noise),
    ] {
        let made = supervisor().shrink(bytes, 64);
        assert!(made.is_err(), "{name}");
    }
}
