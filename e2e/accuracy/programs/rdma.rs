// SPDX-License-Identifier: Apache-2.0

// rdma: requests in Rust, through libibverbs' C interface; its protocol is told.h's. As the inline
// functions of verbs.h, ibv_post_send() and ibv_poll_cq() here are calls through the context.
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{stdin, Read, Write};
use std::ptr::{addr_of_mut, null_mut};

const PLACES: u32 = 128;
const RC: i32 = 2;
const UD: i32 = 4;
const WRITE: i32 = 0;
const SEND: i32 = 2;
const READ: i32 = 4;

// ---- the structures of verbs.h; the tables of functions have those before the one that is called

#[repr(C)]
struct Context {
    device: *mut u8,
    before_poll: [usize; 11],
    poll_cq: unsafe extern "C" fn(*mut Cq, i32, *mut Completion) -> i32,
    before_post: [usize; 13],
    post_send: unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> i32,
}

#[repr(C)]
struct Cq {
    context: *mut Context,
}

#[repr(C)]
struct Qp {
    context: *mut Context,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    words: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sge {
    address: u64,
    length: u32,
    lkey: u32,
}

#[repr(C)]
struct SendRequest {
    id: u64,
    next: *mut SendRequest,
    sges: *const Sge,
    n_sges: i32,
    opcode: i32,
    flags: u32,
    more: [u64; 12],
}

#[repr(C)]
struct InitAttr {
    qp_context: *mut u8,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: *mut u8,
    capacity: [u32; 5], // requests to send, to receive; buffers of each; inline data
    kind: i32,
    all_signaled: i32,
}

#[repr(C)]
struct Attr {
    state: i32,
    more: [u64; 18],
}

#[link(name = "ibverbs")]
extern "C" {
    fn ibv_get_device_list(n: *mut i32) -> *mut *mut u8;
    fn ibv_open_device(device: *mut u8) -> *mut Context;
    fn ibv_alloc_pd(context: *mut Context) -> *mut u8;
    fn ibv_create_cq(c: *mut Context, n: i32, its: *mut u8, channel: *mut u8, v: i32) -> *mut Cq;
    fn ibv_create_qp(pd: *mut u8, attr: *mut InitAttr) -> *mut Qp;
    fn ibv_modify_qp(qp: *mut Qp, attr: *mut Attr, mask: i32) -> i32;
    fn ibv_reg_mr(pd: *mut u8, address: *mut u8, n: usize, access: i32) -> *mut u8;
    fn ibv_dereg_mr(region: *mut u8) -> i32;
}

// ---- queue pairs ----

struct Device {
    pd: *mut u8,
    cq: *mut Cq,
}

impl Device {
    fn open(device: *mut u8) -> Device {
        unsafe {
            let context = ibv_open_device(device);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 1024, null_mut(), null_mut(), 0);
            assert!(!pd.is_null() && !cq.is_null());
            Device { pd, cq }
        }
    }

    /// Waits until podflame probes the function that posts, as await_probe() of rdma.h.
    fn await_probe(&self) {
        unsafe {
            let code = (*(*self.cq).context).post_send as *const u8;
            while !(0..16).any(|i| code.add(i).read_volatile() == 0xcc) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }

    fn poll(&self) {
        let mut done = [Completion { words: [0; 6] }; 16];
        unsafe { while ((*(*self.cq).context).poll_cq)(self.cq, 16, done.as_mut_ptr()) > 0 {} }
    }
}

struct Pair(*mut Qp);
unsafe impl Send for Pair {}

impl Pair {
    fn new(device: &Device, kind: i32) -> Pair {
        let mut attr = InitAttr {
            qp_context: null_mut(),
            send_cq: device.cq,
            recv_cq: device.cq,
            srq: null_mut(),
            capacity: [PLACES, PLACES, 4, 4, 256],
            kind,
            all_signaled: 1,
        };
        let qp = unsafe { ibv_create_qp(device.pd, addr_of_mut!(attr)) };
        for state in 1..4 {
            let mut attr = Attr { state, more: [0; 18] };
            assert_eq!(unsafe { ibv_modify_qp(qp, addr_of_mut!(attr), 1) }, 0);
        }
        Pair(qp)
    }

    #[inline(never)]
    fn send(&self, opcode: i32, lengths: &[u32]) {
        let sges: Vec<Sge> =
            lengths.iter().map(|&length| Sge { address: 4096, length, lkey: 1 }).collect();
        let mut request = SendRequest {
            id: 0,
            next: null_mut(),
            sges: sges.as_ptr(),
            n_sges: sges.len() as i32,
            opcode,
            flags: 0,
            more: [0; 12],
        };
        let mut bad = null_mut();
        let error = unsafe {
            ((*(*self.0).context).post_send)(self.0, addr_of_mut!(request), addr_of_mut!(bad))
        };
        assert_eq!(error, 0);
        black_box(()); // no tail call
    }
}

/// Memory that is registered as long as the object lives.
struct Region {
    mr: *mut u8,
    _data: Vec<u8>,
}

impl Region {
    #[inline(never)]
    fn new(device: &Device, n: usize) -> Region {
        let mut data = vec![0; n];
        let mr = unsafe { ibv_reg_mr(device.pd, data.as_mut_ptr(), n, 0) };
        assert!(!mr.is_null());
        Region { mr, _data: data }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
    }
}

// ---- what is posted ----

struct Program {
    first: Device,
    second: Device,
    rc: Pair,
    ud: Pair,
    other: Pair,
}

#[inline(never)]
fn sends(p: &Program) {
    p.rc.send(SEND, &[1000]);
    black_box(());
}

#[inline(never)]
fn writes_parts(p: &Program) {
    p.rc.send(WRITE, &[2, 20, 200]);
    black_box(());
}

#[inline(never)]
fn sends_datagrams(p: &Program) {
    (0..3).for_each(|i| p.ud.send(SEND, &[600 + i]));
}

#[inline(never)]
fn reads_on_second(p: &Program) {
    p.other.send(READ, &[3000]);
    black_box(());
}

#[inline(never)]
fn of_thread(pair: &Pair) {
    pair.send(SEND, &[900]);
    black_box(());
}

fn starts_thread(p: &Program) {
    let pair = Pair(p.rc.0);
    std::thread::spawn(move || of_thread(&{ pair })).join().unwrap();
}

#[inline(never)]
fn registers(p: &Program) {
    drop(black_box(Region::new(&p.second, 7000)));
}

type Row = (fn(&Program), &'static str, &'static str, u64, &'static str);
const ROWS: [Row; 6] = [
    (sends, "sends", "send", 1000, "RC@standin_0"),
    (writes_parts, "writes_parts", "write", 222, "RC@standin_0"),
    (sends_datagrams, "sends_datagrams", "send", 1803, "UD@standin_0"),
    (reads_on_second, "reads_on_second", "read", 3000, "RC@standin_1"),
    (starts_thread, "of_thread", "send", 900, "RC@standin_0"),
    (registers, "registers", "register", 7000, "@standin_1"),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds: u64 = args[2].parse().unwrap();
    let list = unsafe { ibv_get_device_list(null_mut()) };
    let (first, second) = unsafe { (Device::open(*list), Device::open(*list.add(1))) };
    println!("ready");
    stdin().read_exact(&mut [0]).unwrap();
    let p = Program {
        rc: Pair::new(&first, RC),
        ud: Pair::new(&first, UD),
        other: Pair::new(&second, RC),
        first,
        second,
    };
    p.first.await_probe();
    p.second.await_probe();
    println!("shown {}", std::process::id()); // as await_counts() of rdma.h
    stdin().read_exact(&mut [0]).unwrap();
    let mut told = String::new();
    for (f, name, operation, bytes, queue) in ROWS {
        for _ in 0..rounds {
            f(&p);
            p.first.poll();
            p.second.poll();
        }
        writeln!(told, "rdma:{operation} {name} {} {queue}", bytes * rounds).unwrap();
    }
    std::fs::write(&args[1], told).unwrap();
    println!("done");
    std::io::stdout().flush().unwrap();
    stdin().read_to_end(&mut Vec::new()).unwrap();
}
