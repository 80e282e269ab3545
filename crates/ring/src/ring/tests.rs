#[cfg(not(loom))]
mod plain {
    use super::super::*;
    use crate::memory::Memory;
    use proptest::prelude::*;

    fn pair(data_bytes: usize) -> (Producer, Consumer, Range) {
        let memory = Memory::anonymous(ring_bytes(data_bytes) as u64).unwrap();
        let range = memory.slice(0, ring_bytes(data_bytes) as u64).unwrap();
        (
            Producer::new(range.clone()).unwrap(),
            Consumer::new(range.clone()).unwrap(),
            range,
        )
    }

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (mut producer, mut consumer, _) = pair(256);
        let mut got = Vec::new();
        for round in 0..100u8 {
            let sent = vec![round; round as usize];
            producer.try_push(&sent).unwrap();
            assert!(!consumer.pop(&mut got).unwrap(), "seen before publish");
            producer.publish();
            assert!(consumer.pop(&mut got).unwrap());
            assert_eq!(got, sent);
        }
        assert_eq!((producer.pushed(), consumer.popped()), (100, 100));
    }

    #[test]
    fn a_full_ring_refuses_and_recovers() {
        let (mut producer, mut consumer, _) = pair(256);
        let mut pushed = 0;
        while producer.try_push(&[1; 24]).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, 8);
        producer.publish();
        let mut got = Vec::new();
        assert!(consumer.pop(&mut got).unwrap());
        producer.try_push(&[2; 24]).unwrap();
        assert_eq!(producer.try_push(&[3; 24]), Err(Full));
    }

    #[test]
    fn a_message_beyond_the_limit_is_corrupt() {
        let (mut producer, consumer, _) = pair(1024);
        let mut consumer = consumer.limit_messages(100);
        let mut got = Vec::new();
        producer.try_push(&[1; 100]).unwrap();
        producer.try_push(&[1; 101]).unwrap();
        assert!(!producer.show());
        assert_eq!(consumer.pop(&mut got), Ok(true));
        assert_eq!(consumer.pop(&mut got), Err(RingError::Corrupt));
    }

    #[test]
    fn a_message_larger_than_the_ring_passes_in_pieces() {
        let (mut producer, mut consumer, _) = pair(1024);
        let sent: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
        let expected = sent.clone();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            while !consumer.pop(&mut got).unwrap() {
                consumer.wait(Duration::ZERO, Some(Duration::from_millis(10)));
            }
            got
        });
        producer
            .push_large(&sent, || {
                std::thread::yield_now();
                true
            })
            .unwrap();
        assert_eq!(reader.join().unwrap(), expected);
    }

    #[test]
    fn both_ends_continue_elsewhere() {
        let (mut producer, mut consumer, range) = pair(256);
        let mut got = Vec::new();
        for round in 0..50u8 {
            producer.try_push(&[round; 40]).unwrap();
            assert_eq!(producer.position(), None, "unpublished");
            producer.publish();
            producer = Producer::resume(range.clone(), producer.position().unwrap()).unwrap();
            consumer = Consumer::resume(range.clone(), consumer.position()).unwrap();
            assert!(consumer.pop(&mut got).unwrap());
            assert_eq!(got, [round; 40]);
        }
        assert_eq!((producer.pushed(), consumer.popped()), (50, 50));
        for (bytes, peer) in [(4, 0), (264, 0), (0, 8)] {
            let position = Position {
                bytes,
                peer,
                messages: 0,
            };
            assert!(Producer::resume(range.clone(), position).is_err());
        }
    }

    #[test]
    fn bad_layouts_are_refused() {
        let memory = Memory::anonymous(8192).unwrap();
        for (offset, len) in [(0, 600), (8, 512 + 256), (0, 512 + 255), (0, 100), (0, 0)] {
            let range = memory.slice(offset, len).unwrap();
            assert_eq!(Base::new(&range).err(), Some(RingError::Layout));
        }
    }

    #[test]
    fn a_sleeping_consumer_is_woken() {
        let (mut producer, mut consumer, _) = pair(256);
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            while !consumer.pop(&mut got).unwrap() {
                consumer.wait(Duration::ZERO, None);
            }
            got
        });
        std::thread::sleep(Duration::from_millis(20));
        producer.try_push(b"wake").unwrap();
        producer.publish();
        assert_eq!(reader.join().unwrap(), b"wake");
    }

    #[test]
    fn a_producer_sees_a_consumer_that_left() {
        let (mut producer, consumer, _) = pair(256);
        let mut push = || {
            producer.try_push(b"message").unwrap();
            producer.show()
        };
        assert!(!push());
        // It leaves a message behind.
        assert!(!consumer.leave());
        assert!(push());
        consumer.attend();
        assert!(!push());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn hostile_bytes_never_escape_the_ring(
            words in prop::collection::vec(any::<u64>(), 96),
            tail in any::<u64>(),
            pops in 1..20usize,
        ) {
            let (_, mut consumer, range) = pair(256);
            for (i, word) in words.iter().enumerate() {
                // SAFETY: 96 words are the ring's 768 bytes.
                unsafe { range.ptr().cast::<u64>().add(i).write(*word) };
            }
            let header = consumer.base.clone();
            header.header().tail.store(tail % 512, Relaxed);
            let mut got = Vec::new();
            for _ in 0..pops {
                match consumer.pop(&mut got) {
                    Ok(true) => prop_assert!(got.len() <= 256),
                    Ok(false) => break,
                    Err(e) => { prop_assert_eq!(e, RingError::Corrupt); break }
                }
                // A hostile `MORE` bit would make the consumer wait for the rest: end the test
                // there.
                if consumer.is_empty() { break }
            }
        }

        #[test]
        fn a_hostile_head_never_frees_what_is_unread(head in any::<u64>()) {
            let (mut producer, consumer, _) = pair(256);
            producer.try_push(&[1; 100]).unwrap();
            producer.publish();
            consumer.base.header().head.store(head, Relaxed);
            let free = producer.free(256);
            prop_assert!(free <= 256);
        }

        #[test]
        fn any_sequence_behaves_as_a_queue(ops in prop::collection::vec(prop::option::of(0..120usize), 1..200)) {
            let (mut producer, mut consumer, _) = pair(512);
            let mut model = std::collections::VecDeque::new();
            let mut got = Vec::new();
            for (i, op) in ops.into_iter().enumerate() {
                match op {
                    Some(len) => {
                        let message = vec![i as u8; len];
                        if producer.try_push(&message).is_ok() {
                            producer.publish();
                            model.push_back(message);
                        }
                    }
                    None => {
                        let popped = consumer.pop(&mut got).unwrap();
                        prop_assert_eq!(popped.then(|| got.clone()), model.pop_front());
                    }
                }
            }
        }
    }
}

/// All interleavings of one producer and one consumer: `RUSTFLAGS="--cfg loom" cargo test --release
/// -p baltra-ring --lib loom`.
#[cfg(loom)]
mod loom_models {
    use super::super::*;

    fn pair() -> (Producer, Consumer) {
        // A model's memory is leaked; loom runs the model a few thousand times.
        let header: &'static Header = Box::leak(Box::new(Header::zeroed()));
        let data: &'static mut [u64] = Box::leak(vec![0u64; 32].into_boxed_slice());
        let base = Base {
            header,
            data: data.as_mut_ptr().cast(),
            capacity: 256,
            _range: None,
        };
        (Producer::over(base.clone()), Consumer::over(base))
    }

    #[test]
    fn loom_messages_are_seen_whole() {
        loom::model(|| {
            let (mut producer, mut consumer) = pair();
            let writer = loom::thread::spawn(move || {
                for i in 1..=2u8 {
                    producer.try_push(&[i; 9]).unwrap();
                    producer.publish();
                }
            });
            let mut got = Vec::new();
            let mut seen = 0;
            while seen < 2 {
                if consumer.pop(&mut got).unwrap() {
                    seen += 1;
                    assert_eq!(got, [seen; 9]);
                } else {
                    loom::thread::yield_now();
                }
            }
            writer.join().unwrap();
        });
    }

    /// The consumer may go to sleep on the bell after the last publish has rung it.
    #[test]
    fn loom_no_wakeup_is_lost() {
        loom::model(|| {
            let (mut producer, consumer) = pair();
            let writer = loom::thread::spawn(move || {
                producer.try_push(&[1]).unwrap();
                producer.publish();
            });
            let header = consumer.base.header();
            let seen = header.bell.load(Acquire);
            header.sleeping.store(1, Relaxed);
            fence(SeqCst);
            let would_sleep = consumer.is_empty();
            writer.join().unwrap();
            if would_sleep {
                assert_ne!(header.bell.load(Acquire), seen, "asleep forever");
            }
        });
    }

    /// Either a parking consumer sees the message, or its producer sees that it is parked.
    #[test]
    fn loom_a_parked_consumer_is_run() {
        loom::model(|| {
            let (mut producer, consumer) = pair();
            let writer = loom::thread::spawn(move || {
                producer.try_push(&[1]).unwrap();
                producer.publish() && producer.take_parked()
            });
            let parked = consumer.park(|| false);
            let run = writer.join().unwrap();
            assert!(!parked || run, "parked forever");
        });
    }

    /// The producer detects a consumer that sleeps by other means.
    #[test]
    fn loom_a_sleeper_is_seen() {
        loom::model(|| {
            let (mut producer, consumer) = pair();
            let writer = loom::thread::spawn(move || {
                producer.try_push(&[1]).unwrap();
                producer.show()
            });
            consumer.sleep_with(|| assert!(writer.join().unwrap(), "asleep forever"));
        });
    }

    /// Either a consumer that leaves sees the message, or its producer sees that it has left.
    #[test]
    fn loom_a_consumer_that_left_is_notified() {
        loom::model(|| {
            let (mut producer, consumer) = pair();
            let writer = loom::thread::spawn(move || {
                producer.try_push(&[1]).unwrap();
                producer.show()
            });
            let empty = consumer.leave();
            let notified = writer.join().unwrap();
            assert!(!empty || notified, "left forever");
        });
    }
}
