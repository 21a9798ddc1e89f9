//! Tests of the queue: order of permits, limits of waiting, and lent permits.

use std::{pin::Pin, task::Poll};

use super::*;

type Entering = Pin<Box<dyn Future<Output = Result<JobPermit, QueueFull>> + Send>>;

/// Requests a permit; returns the future once it waits in the queue.
fn ask(admission: &JobQueue, owner: &str) -> Entering {
    let (admission, owner) = (admission.clone(), Principal::named(owner));
    let mut entering: Entering = Box::pin(async move { admission.enter(&owner).await });
    assert!(poll(&mut entering).is_pending(), "it waits");
    entering
}

/// Requests a permit that nothing refuses.
fn pass(admission: &JobQueue, owner: &str, stay: JobLength) -> Entering {
    let (admission, owner) = (admission.clone(), Principal::named(owner));
    Box::pin(async move { Ok(admission.pass(&owner, stay).await) })
}

fn poll<F: Future + ?Sized>(entering: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let waker = std::task::Waker::noop();
    entering.as_mut().poll(&mut std::task::Context::from_waker(waker))
}

/// Takes the first waiter that has its permit out of `waiting`.
fn served<'a>(waiting: &mut Vec<(&'a str, Entering)>) -> (&'a str, JobPermit) {
    let next =
        waiting.iter_mut().enumerate().find_map(|(at, (_, entering))| match poll(entering) {
            Poll::Ready(place) => Some((at, place.expect("whoever waits is not sent away"))),
            Poll::Pending => None,
        });
    let (at, place) = next.expect("one gets the place");
    (waiting.remove(at).0, place)
}

#[tokio::test]
async fn long_work_leaves_a_place_to_the_rest_however_many_there_are() {
    let owner = Principal::named("a");
    for (places, long_ones) in [(1, 1), (2, 1), (3, 2), (8, 7)] {
        let admission = JobQueue::new(places, 9);
        let mut held = Vec::new();
        for _ in 0..long_ones {
            held.push(admission.pass(&Principal::named("long"), JobLength::Long).await);
        }
        let mut next = pass(&admission, "long", JobLength::Long);
        assert!(poll(&mut next).is_pending(), "{places}: it waits");
        held.push(admission.enter(&owner).await.expect("a place is left"));
        let mut short = ask(&admission, "a");
        drop(held.pop());
        assert!(matches!(poll(&mut short), Poll::Ready(Ok(_))), "{places}: who can goes");
        assert!(poll(&mut next).is_pending(), "{places}: no more of them");
        drop(held.remove(0));
        let place = next.await.expect("not refused");
        drop((place, held));
        let (waiting, free) = (admission.waiting(), free(&admission));
        assert_eq!((waiting, free), (0, places.max(2) as isize), "{places}");
    }
}

fn free(admission: &JobQueue) -> isize {
    admission.0.state.lock().free
}

#[tokio::test]
async fn places_then_a_queue_then_a_refusal() {
    let (admission, alice) = (JobQueue::new(1, 2), Principal::named("alice"));
    let running = admission.enter(&alice).await.expect("free");
    let waiting: Vec<_> = (0..2).map(|_| ask(&admission, "alice")).collect();
    assert_eq!(admission.waiting(), 2);
    let refused = admission.enter(&alice).await.err();
    assert_eq!(refused, Some(QueueFull { queue_max: 2 }));
    drop(running);
    for waiter in waiting {
        assert!(waiter.await.is_ok(), "each in its turn");
    }
    assert_eq!((admission.waiting(), free(&admission)), (0, 2), "places come back");
}

#[tokio::test]
async fn places_go_round_the_principals() {
    let (admission, alice) = (JobQueue::new(1, 9), Principal::named("alice"));
    let mut running = admission.enter(&alice).await.expect("free");
    let names = ["alice", "alice", "alice", "bob", "bob", "carol"];
    let mut waiting: Vec<_> = names.iter().map(|name| (*name, ask(&admission, name))).collect();
    let mut order = Vec::new();
    while !waiting.is_empty() {
        drop(running);
        let (name, place) = served(&mut waiting);
        order.push(name);
        running = place;
    }
    assert_eq!(order, ["alice", "bob", "carol", "alice", "bob", "alice"]);
}

#[tokio::test]
async fn a_full_queue_has_room_for_those_who_wait_for_less_and_sends_nobody_away() {
    let (admission, alice) = (JobQueue::new(1, 8), Principal::named("alice"));
    let running = admission.enter(&alice).await.expect("free");
    // Each later principal gets half of what is left, and a further one always gets some.
    let mut waiting = Vec::new();
    for (name, room) in
        [("alice", 8), ("bob", 4), ("carol", 2), ("dave", 1), ("alice", 0), ("bob", 0)]
    {
        for _ in 0..room {
            drop(admission.reserve(&Principal::named(name)).expect("room"));
            waiting.push((name, ask(&admission, name)));
        }
        let (owner, full) = (Principal::named(name), Some(QueueFull { queue_max: 8 }));
        let reserved = admission.reserve(&owner).map(drop);
        assert_eq!(reserved.err(), full, "{name} has its {room}");
        assert_eq!(admission.enter(&owner).await.err(), full, "{name} has its {room}");
    }
    assert_eq!(admission.waiting(), 15);
    let mut place = running;
    while !waiting.is_empty() {
        drop(place);
        place = served(&mut waiting).1;
    }
    assert_eq!(admission.waiting(), 0);
}

#[tokio::test]
async fn room_that_is_reserved_is_nobody_elses() {
    let admission = JobQueue::new(2, 8);
    let reserve = |name| admission.reserve(&Principal::named(name));
    // Two permits are free, and eight jobs may wait.
    let reserved: Vec<_> = (0..10).map(|_| reserve("alice").expect("room")).collect();
    assert!(reserve("alice").is_err() && reserve("bob").is_ok());
    drop(admission.enter(&Principal::named("alice")).await.expect("a place is free"));
    drop(reserved);
    assert!(reserve("alice").is_ok());
}

#[tokio::test]
async fn what_others_have_let_in_waits_behind_a_full_queue() {
    let (admission, alice) = (JobQueue::new(1, 1), Principal::named("alice"));
    let running = admission.enter(&alice).await.expect("free");
    let first = ask(&admission, "alice");
    assert!(admission.reserve(&alice).is_err(), "the queue is full");
    let mut passed = pass(&admission, "alice", JobLength::Short);
    assert!(poll(&mut passed).is_pending(), "it waits");
    drop(running);
    drop(first.await.expect("not refused"));
    assert!(passed.await.is_ok());
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_the_queue_and_takes_no_place() {
    let (admission, alice) = (JobQueue::new(1, 2), Principal::named("alice"));
    let running = admission.enter(&alice).await.expect("free");
    for _ in 0..3 {
        drop([ask(&admission, "alice"), ask(&admission, "bob")]);
    }
    assert_eq!(admission.waiting(), 0);
    // The waiter gets the permit, but is dropped before it is polled.
    let late = ask(&admission, "bob");
    drop(running);
    assert_eq!((admission.waiting(), free(&admission)), (0, 1));
    drop(late);
    assert_eq!(free(&admission), 2);
}

#[tokio::test]
async fn one_principal_holds_its_share_and_the_rest_is_for_others() {
    let (admission, alice) = (JobQueue::shared(4, 2, 9), Principal::named("alice"));
    let mut held = vec![admission.enter(&alice).await.expect("free")];
    held.push(admission.enter(&alice).await.expect("free"));
    let mut third = ask(&admission, "alice");
    held.push(admission.enter(&Principal::named("bob")).await.expect("free"));
    drop(held.pop());
    assert!(poll(&mut third).is_pending(), "what bob leaves is not for alice");
    drop(held.pop());
    assert!(matches!(poll(&mut third), Poll::Ready(Ok(_))), "what she leaves herself is");
    drop((held, third));
    assert_eq!((admission.waiting(), free(&admission)), (0, 4));
}

/// Starts a wait that lends `place`; returns the sender that ends it, and the wait.
fn waits(
    place: &JobPermit,
) -> (tokio::sync::oneshot::Sender<()>, Pin<Box<dyn Future<Output = ()>>>) {
    let (ends, end) = oneshot::channel::<()>();
    let lender = place.lender();
    let mut wait: Pin<Box<dyn Future<Output = ()>>> =
        Box::pin(async move { lender.lend_while(end).await.expect("told") });
    assert!(poll(&mut wait).is_pending());
    (ends, wait)
}

#[tokio::test]
async fn a_place_is_lent_while_its_work_waits_and_taken_back_at_once() {
    let (admission, alice) = (JobQueue::new(2, 9), Principal::named("alice"));
    let places = [admission.enter(&alice).await, admission.enter(&alice).await];
    let [first, second] = places.map(|place| place.expect("free"));
    let mut bob = ask(&admission, "bob");
    let (ends, wait) = waits(&first);
    let Poll::Ready(Ok(bob)) = poll(&mut bob) else { panic!("bob has what alice does not use") };
    ends.send(()).expect("waited for");
    wait.await;
    assert_eq!(free(&admission), -1, "nobody waits for what was lent");
    let mut carol = ask(&admission, "carol");
    drop(bob);
    assert!(poll(&mut carol).is_pending(), "there are as many again as there may be");
    first.lender().lend_while(std::future::ready(())).await;
    assert!(poll(&mut carol).is_pending(), "what does not wait lends nothing");
    let (ends, wait) = waits(&second);
    let Poll::Ready(Ok(carol)) = poll(&mut carol) else { panic!("carol has the other") };
    drop((second, carol));
    ends.send(()).expect("waited for");
    wait.await;
    assert_eq!(free(&admission), 1, "a place that was left is not taken back");
    let (_ends, wait) = waits(&first);
    drop(wait);
    assert_eq!(free(&admission), 1, "a wait that is given up takes it back");
    first.lender().lend();
    assert_eq!(free(&admission), 2);
    first.lender().lend_while(std::future::ready(())).await;
    assert_eq!(free(&admission), 1, "what comes at once takes it back too");
    drop(first);
    assert_eq!(free(&admission), 2);
}
