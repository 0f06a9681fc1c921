// SPDX-License-Identifier: Apache-2.0
// shares: Rust: a generic function, a closure behind a pointer, recursion, an inlined function, a
// thread. Its protocol is burn.h's.
use std::fs::OpenOptions;
use std::io::{Read, Write};

/* std has one from 1.66 on. */
fn black_box<T: Copy>(x: T) -> T {
    unsafe { std::ptr::read_volatile(&x) }
}

#[repr(C)]
struct Timespec {
    s: i64,
    ns: i64,
}
extern "C" {
    fn clock_gettime(id: i32, t: *mut Timespec) -> i32;
}
fn clock(id: i32) -> u64 {
    let mut t = Timespec { s: 0, ns: 0 };
    unsafe { clock_gettime(id, &mut t) };
    t.s as u64 * 1_000_000_000 + t.ns as u64
}
fn process_ns() -> u64 {
    clock(2)
}
fn thread_ns() -> u64 {
    clock(3)
}

struct Dice(u64);
impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn steps(&mut self) -> u64 {
        1_000_000 + self.below(4_000_000)
    }
}

/* odd: no two are the same, or the compiler would merge functions. */
macro_rules! spin {
    ($n:expr, $odd:expr) => {{
        let mut x: u64 = black_box(1);
        for _ in 0..$n {
            x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add($odd));
        }
        x
    }};
}

trait Number {
    fn steps(self) -> u64;
}
impl Number for u64 {
    fn steps(self) -> u64 {
        self
    }
}

#[inline(never)]
fn generic<T: Number>(n: T) -> u64 {
    spin!(n.steps(), 3)
}

#[inline(never)]
fn recursive(depth: u32, n: u64) -> u64 {
    let x = if depth > 1 {
        recursive(depth - 1, n)
    } else {
        spin!(n, 5)
    };
    black_box(x) + 1
}

#[inline(always)]
fn inlined(n: u64) -> u64 {
    spin!(n, 7)
}

#[inline(never)]
fn around_inlined(n: u64) -> u64 {
    black_box(inlined(n)) + 1
}

#[inline(never)]
fn calls(f: &dyn Fn(u64) -> u64, n: u64) -> u64 {
    black_box(f(n)) + 1
}

#[inline(never)]
fn in_thread(n: u64) -> u64 {
    spin!(n, 9)
}

fn timed(total: &mut u64, f: impl FnOnce() -> u64) {
    let at = thread_ns();
    black_box(f());
    *total += thread_ns() - at;
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let budget = (args[2].parse::<f64>().unwrap() * 1e9) as u64;
    println!("ready");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let first = process_ns();
    let thread = std::thread::spawn(move || {
        let (mut spent, at) = (0, thread_ns());
        let mut dice = Dice(at | 1);
        while thread_ns() - at < budget / 5 {
            timed(&mut spent, || in_thread(dice.steps()));
        }
        spent
    });
    let mut spent = [0u64; 4];
    let mut dice = Dice(first | 1);
    let closure = |n: u64| spin!(n, 11);
    while process_ns() - first < budget {
        let n = dice.steps();
        match dice.below(10) {
            0..=3 => timed(&mut spent[0], || generic(n)),
            4..=5 => timed(&mut spent[1], || recursive(30, n)),
            6..=7 => timed(&mut spent[2], || around_inlined(n)),
            _ => timed(&mut spent[3], || calls(&closure, n)),
        }
    }
    let in_thread_ns = thread.join().unwrap();
    let mut out = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&args[1])
        .unwrap();
    let names = ["generic", "recursive", "inlined", "closure"];
    for (name, ns) in names.iter().zip(spent) {
        writeln!(out, "{name} {ns}").unwrap();
    }
    writeln!(
        out,
        "in_thread {in_thread_ns}\ntotal {}",
        process_ns() - first
    )
    .unwrap();
    println!("done");
    std::io::stdin().read_exact(&mut [0]).ok();
}
