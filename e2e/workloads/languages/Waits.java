// SPDX-License-Identifier: Apache-2.0
/**
 * Known answer in Java, as waits.c of workloads: threads that wait and one that allocates. It
 * prints the same lines.
 */
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.atomic.AtomicLong;

public class Waits {
    static final Object mutex = new Object();
    static volatile byte[] escaped;

    interface Step { void run() throws InterruptedException; }

    static void naps() throws InterruptedException { Thread.sleep(20); }

    static void waits_for_lock() {
        synchronized (mutex) {
            escaped = null;
        }
    }

    static void allocates() {
        for (int i = 0; i < 8; i++) escaped = new byte[65536];
    }

    static long burns() {
        ThreadMXBean clock = ManagementFactory.getThreadMXBean();
        long began = clock.getCurrentThreadCpuTime(), now = began;
        while (now < began + 10_000_000) now = clock.getCurrentThreadCpuTime();
        return (now - began) / 1000;
    }

    static AtomicLong start(Step step, long pause, long bytes) {
        AtomicLong sum = new AtomicLong();
        Thread t = new Thread(() -> {
            try {
                for (;;) {
                    long before = System.nanoTime();
                    step.run();
                    sum.addAndGet(bytes > 0 ? bytes : (System.nanoTime() - before) / 1000);
                    if (pause > 0) Thread.sleep(pause);
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        t.setDaemon(true);
        t.start();
        return sum;
    }

    static void keeps_lock() throws InterruptedException {
        synchronized (mutex) {
            Thread.sleep(20);
        }
        Thread.sleep(20);
    }

    public static void main(String[] args) throws InterruptedException {
        AtomicLong naps = start(Waits::naps, 0, 0), lock = start(Waits::waits_for_lock, 2, 0);
        AtomicLong bytes = start(Waits::allocates, 50, 8 * 65552);
        start(Waits::keeps_lock, 0, 0);
        long burnt = 0;
        for (int n = 0;; n++) {
            burnt += burns();
            Thread.sleep(90);
            if (n % 10 == 0)
                System.out.println("known " + System.currentTimeMillis() / 1000 + " naps=" + naps
                    + " waits_for_lock=" + lock + " allocates=" + bytes + " burns=" + burnt);
        }
    }
}
