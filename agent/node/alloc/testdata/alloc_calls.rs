// SPDX-License-Identifier: Apache-2.0
// alloc_calls.c for Rust.
use std::hint::black_box;
use std::io::Write;

type Said<T> = (usize, usize, Vec<T>);

#[inline(never)]
fn with_vec(n: usize) -> Said<Vec<u8>> {
    let (mut asked, mut alive, mut keep) = (7 * 24, 7 * 24, Vec::with_capacity(7));
    for i in 0..n {
        let v: Vec<u8> = Vec::with_capacity(100 + i % 50);
        asked += v.capacity();
        if i + 7 >= n {
            alive += v.capacity();
            keep.push(v);
        }
    }
    (asked, alive, keep)
}

#[inline(never)]
fn with_zeroed(n: usize) -> Said<u8> {
    let mut asked = 0;
    for i in 0..n {
        let v = vec![0u8; 300 + i % 9];
        asked += v.len();
        black_box(&v);
    }
    (asked, 0, Vec::new())
}

#[inline(never)]
fn through_grow(n: usize) -> Said<u8> {
    let mut asked = 0;
    for i in 0..n {
        let mut v: Vec<u8> = Vec::with_capacity(50);
        black_box(&v);
        v.reserve_exact(5000 + i % 3);
        asked += 50 + v.capacity() + 1;
        black_box(&v);
        v.push(1);
        v.shrink_to_fit();
        black_box(&v);
    }
    (asked, 0, Vec::new())
}

#[repr(align(64))]
struct Wide([u8; 192]);

#[inline(never)]
fn through_aligned(n: usize) -> Said<Box<Wide>> {
    let mut keep = Vec::with_capacity(3);
    for i in 0..n {
        let b = Box::new(Wide([i as u8; 192]));
        black_box(b.0[3]);
        if i + 3 >= n {
            keep.push(b);
        }
    }
    (n * 192 + 24, 3 * 192 + 24, keep)
}

fn main() {
    let mut out = std::io::stdout();
    let mut line = String::with_capacity(64);
    writeln!(out, "ready").unwrap();
    std::io::stdin().read_line(&mut line).unwrap();
    let (a, b, c, d) = (with_vec(500), with_zeroed(500), through_grow(500), through_aligned(200));
    writeln!(out, "with_vec {} {}", a.0, a.1).unwrap();
    writeln!(out, "with_zeroed {} {}", b.0, b.1).unwrap();
    writeln!(out, "through_grow {} {}", c.0, c.1).unwrap();
    writeln!(out, "through_aligned {} {}", d.0, d.1).unwrap();
    writeln!(out, "done").unwrap();
    std::io::stdin().read_line(&mut line).unwrap();
    black_box((&a.2, &d.2));
}
