// SPDX-License-Identifier: Apache-2.0

// Virtual: Java: virtual threads on one carrier: some that never wait, and some that sleep and go
// on: their frames are copied to the heap, and come back one by one as they are returned to, so
// most of them are not on the stack. Its protocol is burn.h's. From JDK 21 on. The CPU clock is the
// carrier's: virtual threads have none.

import java.io.FileWriter;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;

public class Virtual {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final long[] SPENT = new long[3];
    static volatile long sink;
    static long carrier;

    static long shallow(long n) {
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 6364136223846793005L + 1;
        return x;
    }

    static long deep(int depth, long n) throws InterruptedException {
        if (depth > 1)
            return deep(depth - 1, n) + 1;
        Thread.sleep(1);
        long at = THREADS.getThreadCpuTime(carrier);
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 2862933555777941757L + 1;
        SPENT[1] += THREADS.getThreadCpuTime(carrier) - at;
        return x;
    }

    static long fresh(int depth, long n) {
        if (depth > 1)
            return fresh(depth - 1, n) + 1;
        long at = THREADS.getThreadCpuTime(carrier);
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 3202034522624059733L + 1;
        SPENT[2] += THREADS.getThreadCpuTime(carrier) - at;
        return x;
    }

    static void body(long seed, long first, long budget) {
        long state = seed | 1;
        try {
            while (THREADS.getThreadCpuTime(carrier) - first < budget) {
                state ^= state << 13;
                state ^= state >>> 7;
                state ^= state << 17;
                long n = 500000 + (state >>> 1) % 2000000;
                long at = THREADS.getThreadCpuTime(carrier);
                sink += shallow(n);
                SPENT[0] += THREADS.getThreadCpuTime(carrier) - at;
                sink += deep(20, n);
                Thread.ofVirtual().start(() -> sink += fresh(20, n)).join();
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static long findCarrier() {
        for (ThreadInfo t : THREADS.getThreadInfo(THREADS.getAllThreadIds()))
            if (t != null && t.getThreadName().startsWith("ForkJoinPool-1-worker-"))
                return t.getThreadId();
        throw new IllegalStateException("no carrier");
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        long budget = (long) (Double.parseDouble(args[1]) * 1e9);
        Thread.ofVirtual().start(() -> carrier = findCarrier()).join();
        System.out.println("ready");
        System.in.read();
        long first = THREADS.getThreadCpuTime(carrier);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            long seed = System.nanoTime() + i;
            threads.add(Thread.ofVirtual().start(() -> body(seed, first, budget)));
        }
        for (Thread t : threads)
            t.join();
        long total = THREADS.getThreadCpuTime(carrier) - first;
        try (FileWriter out = new FileWriter(args[0], true)) {
            out.write("shallow " + SPENT[0] + "\ndeep " + SPENT[1] + "\nfresh " + SPENT[2]
                + "\ntotal " + total + "\n");
        }
        System.out.println("done");
        System.in.read();
    }
}
