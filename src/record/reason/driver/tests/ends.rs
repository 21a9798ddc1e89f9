//! Tests of requests that are cancelled, or that panic.

use super::*;

#[tokio::test]
async fn a_stop_gives_up_what_is_asked_and_keeps_what_was_said() {
    for by_stop in [true, false] {
        let describer = Scripted::new(1, |index| Ok(said(index)));
        let Stage { driver, _dir } = stage(Arc::clone(&describer)).await;
        let (registry, run) = (Arc::clone(&driver.registry), Arc::clone(&driver.run));
        let (to, taken) = mpsc::channel(1);
        let cancel = CancellationToken::new();
        let told = tokio::spawn(driver.run(inquiry(2), None, taken, cancel.clone()));
        for index in 0..3 {
            to.send(chunk(index)).await.expect("taken");
        }
        while chunks_of(&registry, &run).len() < 2 {
            tokio::task::yield_now().await;
        }
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
    let Stage { driver, _dir } = stage(Arc::clone(&describer)).await;
    let (registry, run) = (Arc::clone(&driver.registry), Arc::clone(&driver.run));
    let (to, taken) = mpsc::channel(1);
    let told = tokio::spawn(driver.run(inquiry(2), None, taken, CancellationToken::new()));
    for index in 0..2 {
        to.send(chunk(index)).await.expect("taken");
    }
    let told = told.await.expect("no panic of the driver");
    assert!(matches!(told.failed, Some(RunError::Unfinished)) && told.has_said());
    assert_eq!(chunks_of(&registry, &run).len(), 2, "what was said of the other");
}
