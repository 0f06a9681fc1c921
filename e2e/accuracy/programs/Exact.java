// SPDX-License-Identifier: Apache-2.0

// exact: in Java, from JDK 8 on; its protocol is exact.h's. Sleep and locks of the JVM are futexes.

import java.io.IOException;
import java.io.PrintWriter;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.LockSupport;

public class Exact {
    static final int WAIT_MS = 15;
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final Object MUTEX = new Object();
    static final LinkedBlockingQueue<Character> ASK = new LinkedBlockingQueue<>();
    static final SynchronousQueue<Boolean> HELD = new SynchronousQueue<>();
    static final ByteBuffer ONE = ByteBuffer.allocateDirect(1);
    static Pipe pipe;
    static SocketChannel socket, far;
    static Selector selector;
    static RandomAccessFile disk;
    static volatile Object escaped;
    static PrintWriter told;
    static int rounds;

    interface Step { void run() throws Exception; }

    static final class Thing { long a, b, c, d, e, f; }     // 64 bytes with its head

    static void naps() throws Exception { Thread.sleep(WAIT_MS); }

    static void parks() { LockSupport.parkNanos(WAIT_MS * 1_000_000L); }

    static void waits_for_lock() {
        synchronized (MUTEX) {
            escaped = null;
        }
    }

    static void reads_pipe() throws IOException {
        ONE.clear();
        pipe.source().read(ONE);
    }

    static void reads_socket() throws IOException {
        ONE.clear();
        socket.read(ONE);
    }

    static void polls() throws IOException { selector.select(WAIT_MS); }

    static void syncs() throws IOException {
        disk.seek(0);
        disk.write('x');
        disk.getFD().sync();
    }

    static void bytes() { escaped = new byte[65536]; }

    static void longs() { escaped = new long[5000]; }

    static void things() {
        for (int i = 0; i < 1000; i++) escaped = new Thing();
    }

    static void helps() {
        try {
            for (;;) {
                char what = ASK.take();
                if (what == 'l') {
                    synchronized (MUTEX) {
                        HELD.put(true);
                        Thread.sleep(WAIT_MS);
                    }
                    continue;
                }
                Thread.sleep(WAIT_MS);
                ByteBuffer x = ByteBuffer.wrap(new byte[] {'x'});
                if (what == 'p') pipe.sink().write(x);
                else far.write(x);
            }
        } catch (InterruptedException | IOException e) {
            throw new IllegalStateException(e);
        }
    }

    static void waits(String name, String cause, Step f, char asks) throws Exception {
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            if (asks != 0) ASK.put(asks);
            if (asks == 'l') HELD.take();
            long before = System.nanoTime(), cpu = THREADS.getCurrentThreadCpuTime();
            f.run();
            sum += System.nanoTime() - before - (THREADS.getCurrentThreadCpuTime() - cpu);
        }
        told.println("off-cpu " + name + " " + sum / 1000 + " " + cause);
    }

    // Of what a thread has of its heap in advance, a sample may stand for other's bytes: there is
    // to be much of each.
    static void allocates(String name, Step f, long bytes) throws Exception {
        int times = (int) (rounds * 1_000_000L / bytes) + 1;
        for (int i = 0; i < times; i++) f.run();
        told.println("mem-alloc " + name + " " + times * bytes);
    }

    public static void main(String[] args) throws Exception {
        told = new PrintWriter(args[0]);
        rounds = Integer.parseInt(args[1]);
        disk = new RandomAccessFile(args[0] + ".disk", "rw");
        pipe = Pipe.open();
        selector = Selector.open();
        InetSocketAddress anyPort = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        ServerSocketChannel server = ServerSocketChannel.open().bind(anyPort);
        socket = SocketChannel.open(server.getLocalAddress());
        far = server.accept();
        Thread t = new Thread(Exact::helps);
        t.setDaemon(true);
        t.start();
        System.out.println("ready");
        System.in.read();
        waits("naps", "lock", Exact::naps, (char) 0);
        waits("parks", "lock", Exact::parks, (char) 0);
        waits("waits_for_lock", "lock", Exact::waits_for_lock, 'l');
        waits("reads_pipe", "pipe", Exact::reads_pipe, 'p');
        waits("reads_socket", "socket", Exact::reads_socket, 's');
        waits("polls", "poll", Exact::polls, (char) 0);
        waits("syncs", "disk", Exact::syncs, (char) 0);
        allocates("bytes", Exact::bytes, 65552);
        allocates("longs", Exact::longs, 40016);
        allocates("things", Exact::things, 64000);
        told.close();
        System.out.println("done");
        while (System.in.read() >= 0) ;
    }
}
