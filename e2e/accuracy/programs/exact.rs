// SPDX-License-Identifier: Apache-2.0

// exact: in Rust; its protocol is exact.h's.
use std::alloc::{alloc, dealloc, Layout};
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::mem::forget;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_millis(15);
static MUTEX: Mutex<()> = Mutex::new(());
static CONDVAR: Condvar = Condvar::new();

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}
extern "C" {
    fn pipe(fds: *mut i32) -> i32;
    fn poll(fds: *mut u8, n: u64, ms: i32) -> i32;
    fn sigtimedwait(set: *const u64, info: *mut u8, t: *const Timespec) -> i32;
    fn clock_gettime(id: i32, t: *mut Timespec) -> i32;
}

struct Program {
    pipe: File,
    socket: UnixStream,
    disk: File,
    ask: Sender<char>,
    held: Receiver<()>,
    told: File,
    rounds: u64,
}

// ---- waits ----

#[inline(never)]
fn naps(_: &mut Program) {
    std::thread::sleep(WAIT);
    black_box(()); // no tail call
}

#[inline(never)]
fn waits_for_lock(_: &mut Program) {
    drop(black_box(MUTEX.lock().unwrap()));
}

#[inline(never)]
fn waits_for_condition(_: &mut Program) {
    let guard = MUTEX.lock().unwrap();
    drop(black_box(CONDVAR.wait_timeout(guard, WAIT).unwrap()));
}

#[inline(never)]
fn reads_pipe(p: &mut Program) {
    p.pipe.read_exact(&mut [0]).unwrap();
}

#[inline(never)]
fn reads_socket(p: &mut Program) {
    p.socket.read_exact(&mut [0]).unwrap();
}

#[inline(never)]
fn polls(_: &mut Program) {
    unsafe { black_box(poll(std::ptr::null_mut(), 0, WAIT.as_millis() as i32)) };
}

#[inline(never)]
fn syncs(p: &mut Program) {
    p.disk.write_all(b"x").unwrap();
    p.disk.sync_data().unwrap();
}

#[inline(never)]
fn waits_for_signal(_: &mut Program) {
    let (set, t) = ([1u64 << 9; 16], Timespec { sec: 0, nsec: WAIT.as_nanos() as i64 });
    unsafe { black_box(sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &t)) };
}

// ---- memory ----

#[inline(never)]
fn boxes() {
    drop(black_box(Box::new([1u8; 1234])));
}

#[inline(never)]
fn zeroes() {
    drop(black_box(vec![0u8; 20000]));
}

#[inline(never)]
fn vec_grows() {
    let mut v = Vec::<u64>::new(); // 4, 8, ... 4096 elements
    for i in 0..4096 {
        v.push(black_box(i));
    }
    black_box(v);
}

#[inline(never)]
fn strings() {
    drop(black_box("x".repeat(1000)));
}

#[inline(never)]
fn aligned() {
    let layout = Layout::from_size_align(5000, 128).unwrap();
    unsafe { dealloc(black_box(alloc(layout)), layout) };
}

#[inline(never)]
fn leaks() {
    forget(black_box(Vec::<u8>::with_capacity(3001)));
}

#[inline(never)]
fn leaks_what_it_resizes() {
    let mut v = Vec::<u8>::with_capacity(100);
    black_box(&mut v).reserve_exact(7000);
    forget(black_box(v));
}

// ---- what is known ----

fn cpu() -> Duration {
    let mut t = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(3, &mut t) };
    Duration::new(t.sec as u64, t.nsec as u32)
}

impl Program {
    fn waits(&mut self, name: &str, cause: &str, f: fn(&mut Program), asks: Option<char>) {
        let mut sum = Duration::ZERO;
        for _ in 0..self.rounds {
            if let Some(what) = asks {
                self.ask.send(what).unwrap();
                if what == 'l' {
                    self.held.recv().unwrap();
                }
            }
            let (before, had) = (Instant::now(), cpu());
            f(self);
            sum += before.elapsed().saturating_sub(cpu() - had);
        }
        writeln!(self.told, "off-cpu {name} {} {cause}", sum.as_micros()).unwrap();
    }

    fn allocates(&mut self, name: &str, f: fn(), bytes: u64, kept: u64) {
        for _ in 0..self.rounds {
            f();
        }
        let (bytes, kept) = (bytes * self.rounds, kept * self.rounds);
        writeln!(self.told, "mem-alloc {name} {bytes}\nmem-inuse {name} {kept}").unwrap();
    }
}

fn helps(asked: Receiver<char>, held: Sender<()>, mut pipe: File, mut socket: UnixStream) {
    for what in asked {
        let guard = (what == 'l').then(|| MUTEX.lock().unwrap());
        if what == 'l' {
            held.send(()).unwrap();
        }
        std::thread::sleep(WAIT);
        drop(guard);
        match what {
            'p' => pipe.write_all(b"x").unwrap(),
            's' => socket.write_all(b"x").unwrap(),
            _ => (),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut fds = [0; 2];
    assert!(unsafe { pipe(fds.as_mut_ptr()) } == 0);
    let (pipe, feed) = unsafe { (File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])) };
    let (socket, feeds) = UnixStream::pair().unwrap();
    let (ask, asked) = channel();
    let (holds, held) = channel();
    std::thread::spawn(|| helps(asked, holds, feed, feeds));
    let disk = File::create(format!("{}.disk", args[1])).unwrap();
    let told = File::create(&args[1]).unwrap();
    let mut p = Program { pipe, socket, disk, ask, held, told, rounds: args[2].parse().unwrap() };
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    p.waits("naps", "sleep", naps, None);
    p.waits("waits_for_lock", "lock", waits_for_lock, Some('l'));
    p.waits("waits_for_condition", "lock", waits_for_condition, None);
    p.waits("reads_pipe", "pipe", reads_pipe, Some('p'));
    p.waits("reads_socket", "socket", reads_socket, Some('s'));
    p.waits("polls", "poll", polls, None);
    p.waits("syncs", "disk", syncs, None);
    p.waits("waits_for_signal", "other", waits_for_signal, None);
    p.allocates("boxes", boxes, 1234, 0);
    p.allocates("zeroes", zeroes, 20000, 0);
    p.allocates("vec_grows", vec_grows, 8 * (8192 - 4), 0);
    p.allocates("strings", strings, 1000, 0);
    p.allocates("aligned", aligned, 5000, 0);
    p.allocates("leaks", leaks, 3001, 3001);
    p.allocates("leaks_what_it_resizes", leaks_what_it_resizes, 7100, 7000);
    println!("done");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
