// SPDX-License-Identifier: Apache-2.0
//! Known answer in Rust, as waits.c: threads that wait and some that allocate. It prints the same
//! lines.
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MS: Duration = Duration::from_millis(1);
#[no_mangle] // or the compiler sees that nobody looks
pub static ESCAPED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Memory that the compiler may not leave out.
fn escapes(mut v: Vec<u8>) -> Vec<u8> {
    ESCAPED.store(v.as_mut_ptr(), Relaxed);
    v
}

#[inline(never)]
fn naps() {
    sleep(20 * MS);
    // else its last call is a jump, and it is in no stack
    ESCAPED.store(std::ptr::null_mut(), Relaxed);
}

#[inline(never)]
fn waits_for_lock(lock: &Mutex<u8>) {
    *lock.lock().unwrap() += 0;
}

#[inline(never)]
fn reads_socket(mut from: &UnixStream) {
    from.read_exact(&mut [0]).unwrap();
}

#[inline(never)]
fn allocates() {
    for _ in 0..4 {
        drop(escapes(vec![0; 65536]));
    }
}

#[inline(never)]
fn leaks() {
    std::mem::forget(escapes(Vec::with_capacity(8192)));
}

#[inline(never)]
fn holds(held: &mut [Vec<u8>], bytes: usize) {
    for v in held {
        *v = escapes(Vec::with_capacity(bytes));
    }
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

fn cpu_us() -> u64 {
    let (thread, mut time) = (3, [0; 2]);
    unsafe { clock_gettime(thread, &mut time) };
    (time[0] * 1_000_000 + time[1] / 1000) as u64
}

#[inline(never)]
fn burns() {
    let end = cpu_us() + 10_000;
    while cpu_us() < end {}
}

/// Calls a function for ever and adds up its microseconds, or its bytes if it allocates.
fn start(f: impl Fn() + Send + 'static, pause: Duration, bytes: u64) -> Arc<AtomicU64> {
    let sum = Arc::new(AtomicU64::new(0));
    let adds = sum.clone();
    spawn(move || loop {
        let began = Instant::now();
        f();
        adds.fetch_add(if bytes > 0 { bytes } else { began.elapsed().as_micros() as u64 }, Relaxed);
        if pause > Duration::ZERO {
            sleep(pause);
        }
    });
    sum
}

fn main() {
    let lock = Arc::new(Mutex::new(0));
    let (reader, mut writer) = UnixStream::pair().unwrap();
    let waits = lock.clone();
    let rows = [
        ("naps", start(naps, Duration::ZERO, 0)),
        ("waits_for_lock", start(move || waits_for_lock(&waits), 2 * MS, 0)),
        ("reads_socket", start(move || reads_socket(&reader), Duration::ZERO, 0)),
        ("allocates", start(allocates, 50 * MS, 4 * 65536)),
        ("leaks", start(leaks, 50 * MS, 8192)),
    ];
    let held_bytes = Arc::new(AtomicU64::new(0));
    let holding = held_bytes.clone();
    spawn(move || loop {
        let held = lock.lock().unwrap();
        sleep(20 * MS);
        drop(held);
        sleep(20 * MS);
    });
    spawn(move || loop {
        writer.write_all(b"x").unwrap();
        sleep(25 * MS);
    });
    spawn(move || {
        let mut held = vec![Vec::new(); 64];
        for bytes in [65536, 0].iter().cycle() {
            holds(&mut held, *bytes);
            holding.store(64 * *bytes as u64, Relaxed);
            sleep(20_000 * MS);
        }
    });
    for n in 0u64.. {
        burns();
        sleep(90 * MS);
        if n % 10 == 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let sums: Vec<String> = rows
                .iter()
                .map(|(name, sum)| format!("{}={}", name, sum.load(Relaxed)))
                .collect();
            let (burnt, held) = ((n + 1) * 10_000, held_bytes.load(Relaxed));
            println!("known {} {} burns={} holds={}", now, sums.join(" "), burnt, held);
        }
    }
}
