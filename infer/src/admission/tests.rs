//! Tests of permits that are granted, cancelled and released, and of the tokens charged.

use super::*;
use crate::scheduler::Priority;

const LIMITS: AdmissionLimits = AdmissionLimits {
    in_flight: 2,
    in_flight_per_principal: 2,
    waiters: 2,
    wait: Duration::from_secs(60),
    image_bytes: 1000,
    tokens: 1000,
    tokens_per_day: 0,
};

type Uses = Arc<Mutex<Vec<u64>>>;

fn admission(limits: AdmissionLimits) -> (InferenceAdmission, Uses) {
    let uses = Uses::default();
    let heard = Arc::clone(&uses);
    let on_use = Box::new(move |found: DailyUsage| heard.lock().expect("whole").push(found.used));
    (InferenceAdmission::new(limits, Box::new(|| 1), on_use), uses)
}

fn request() -> AdmissionRequest {
    AdmissionRequest {
        principal: "a".into(),
        stream: "s".into(),
        priority: Priority::Live,
        image_bytes: 10,
        tokens: 10,
        wait_max: None,
        retry_after: Duration::ZERO,
    }
}

#[tokio::test]
async fn whoever_must_rest_waits_without_a_place() {
    let (admission, _) = admission(LIMITS);
    let retry_after = Duration::from_millis(30);
    let since = Instant::now();
    let permit =
        admission.enter(AdmissionRequest { retry_after, ..request() }).await.expect("free");
    assert!(since.elapsed() >= retry_after && permit.waited() >= retry_after);
    let wait_max = Some(retry_after);
    let retry_after = Duration::from_secs(60);
    let refused = admission
        .enter(AdmissionRequest { retry_after, wait_max, ..request() })
        .await
        .expect_err("late");
    assert!(matches!(refused, AdmissionError::TimedOut { .. }), "{refused}");
}

#[tokio::test]
async fn what_was_asked_and_not_heard_of_is_charged_as_estimated() {
    let (admission, uses) = admission(AdmissionLimits { tokens_per_day: 100, ..LIMITS });
    drop(admission.enter(request()).await.expect("free"));
    let permit = admission.enter(request()).await.expect("free");
    assert!(permit.reserve(20));
    permit.commit(3);
    assert!(!permit.reserve(98) && permit.reserve(50));
    drop(permit);
    assert_eq!(*uses.lock().expect("whole"), [0, 53]);
    let used = admission.used(&"a".into()).expect("a budget");
    assert_eq!((used.used, used.reserved), (53, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_lost_while_many_come_wait_and_go() {
    let (admission, _) = admission(AdmissionLimits { waiters: 1000, ..LIMITS });
    let tasks: Vec<_> = (0..400u64)
        .map(|at| {
            let admission = admission.clone();
            let principal = format!("p{}", at % 5);
            tokio::spawn(async move {
                let request =
                    AdmissionRequest { principal: principal.as_str().into(), ..request() };
                if at % 4 == 0 {
                    let soon = Duration::from_micros(at * 10);
                    return tokio::time::timeout(soon, admission.enter(request)).await.is_ok();
                }
                let permit = admission.enter(request).await.expect("a place in time");
                tokio::task::yield_now().await;
                if at % 3 == 0 {
                    permit.commit(1);
                }
                drop(permit);
                true
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(admission.load(), SchedulerLoad::default());
}

#[test]
fn estimates_grow_with_what_is_asked() {
    assert_eq!(estimate(0, 0, Some(1)), 1);
    assert_eq!(estimate(10, 0, None), 4 + ANSWER_TOKENS);
    assert_eq!(estimate(3, 2, Some(100)), 1 + 2 * IMAGE_TOKENS + 100);
    let schema = crate::OutputSchema::compile(serde_json::json!({"type": "object"}));
    let request = InferenceRequest {
        max_tokens: Some(10),
        schema: Some(Arc::new(schema.expect("a schema"))),
        ..InferenceRequest::new("m", "abc")
    };
    // 3 bytes of prompt and 17 of schema.
    assert_eq!(request.tokens_estimate(), 7 + 10);
    assert_eq!(request.tokens_estimate_with(1, 4), 8 + 10 + IMAGE_TOKENS);
}
