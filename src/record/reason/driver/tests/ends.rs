//! Tests of requests that are cancelled, or that panic.

use super::*;

#[tokio::test]
async fn a_stop_gives_up_what_is_asked_and_keeps_what_was_said() {
    for by_stop in [true, false] {
        let describer = Scripted::new(1, |index| Ok(said(index)));
        let Stage { registry, run, to, cancel, told, _dir, .. } =
            stage(&describer, inquiry(2), None).await;
        send(&to, (0..3).map(chunk)).await;
        until(|| chunks_of(&registry, &run).len() >= 2).await;
        if by_stop {
            registry.stop(&run, REQUEST).await.expect("active");
            // Lets one answer arrive just before the end.
            describer.permits.add_permits(1);
        }
        cancel.cancel();
        let told = told.await.expect("no panic");
        assert!(told.is_cut, "{by_stop}");
        let answered = describer.answered.load(Ordering::SeqCst);
        assert_eq!(answered, 1 + usize::from(by_stop));
        let kept = (told.insights.len(), chunks_of(&registry, &run).len());
        assert_eq!(kept, (answered, 2 * answered), "{by_stop}: what was answered");
        assert_eq!(describer.under_way.load(Ordering::SeqCst), 0, "{by_stop}");
        assert!(to.send(chunk(3)).await.is_err(), "nobody takes more");
    }
}

#[tokio::test]
async fn an_ask_that_panics_ends_the_others_and_loses_nothing_that_was_said() {
    let describer = Scripted::new(100, |index| if index == 1 { Err(BUG) } else { Ok(said(index)) });
    let Stage { registry, run, to, told, _dir, .. } = stage(&describer, inquiry(2), None).await;
    send(&to, (0..2).map(chunk)).await;
    let told = told.await.expect("no panic of the driver");
    assert!(matches!(told.failed, Some(RunError::Unfinished)) && !told.insights.is_empty());
    assert_eq!(chunks_of(&registry, &run).len(), 2, "what was said of the other");
}
