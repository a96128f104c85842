//! Goal: exclusion and deadlines hold on the real clock and at every fraction of a millisecond.
use super::*;

#[test]
fn deadline_never_exceeds_the_lease() {
    // contract rule 2, over every fraction of a millisecond at which a call may begin
    #[derive(Debug, Default)]
    struct Hands(Mutex<Duration>);
    impl Clock for Hands {
        fn now(&self) -> Instant {
            Instant::from_origin(*self.0.lock().unwrap())
        }
    }
    for micros in (0..3000).step_by(37) {
        let clock = Arc::new(Hands::default());
        let no_drift = crate::Drift::from_ppm(0).unwrap();
        let local = Local::with_limits(TableConfig::default(), no_drift, clock.clone());
        *clock.0.lock().unwrap() = Duration::from_micros(micros);
        let first = local.lock("k", options(10, 0)).now_or_never().unwrap().unwrap();
        let mut waiter: Pending<'_> = Box::pin(local.lock("k", options(20, 500)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { assert!(once(&mut waiter).await.is_pending()) });
        *clock.0.lock().unwrap() = first.deadline().unwrap().since_origin();
        let held = local.inspect("k").now_or_never().unwrap().unwrap().unwrap();
        assert_eq!(held.nonce, first.nonce(), "at the local deadline the lease still lives");
        *clock.0.lock().unwrap() += ms(1) + Duration::from_micros(micros % 400);
        local.release(&first);
        let second = runtime.block_on(waiter).unwrap();
        *clock.0.lock().unwrap() = second.deadline().unwrap().since_origin();
        let held = local.inspect("k").now_or_never().unwrap().unwrap();
        assert_eq!(held.map(|held| held.nonce), Some(second.nonce()), "{micros} µs");
    }
}
