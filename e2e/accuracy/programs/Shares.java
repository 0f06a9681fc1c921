// SPDX-License-Identifier: Apache-2.0

// Shares: Java: loops, recursion, inlined methods, exceptions, lambdas, native methods, stubs,
// garbage, a second thread. Its protocol is burn.h's. From JDK 8 on.

import java.io.FileWriter;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.stream.LongStream;
import java.util.zip.Deflater;

public class Shares {
    static final String[] NAMES = {
        "leaf", "recursive", "inlined", "exceptions", "lambda", "deflate", "copies", "garbage",
        "thread"};
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final long[] SPENT = new long[NAMES.length];
    static final byte[] INPUT = new byte[1 << 16], OUTPUT = new byte[1 << 17];
    static final Object[] KEPT = new Object[64];
    static volatile long sink;

    static final class Dice {
        long state;

        Dice(long seed) {
            state = seed | 1;
        }

        int below(int n) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            return (int) ((state >>> 1) % n);
        }
    }

    static long leaf(long n) {
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 6364136223846793005L + 1;
        return x;
    }

    static long recursive(int depth, long n) {
        if (depth > 1)
            return recursive(depth - 1, n) + 1;
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 2862933555777941757L + 1;
        return x;
    }

    // The compilers are told not to inline this one, so the two that call it are seen whatever they
    // did with them.
    static long notInlined(long n) {
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 3202034522624059733L + 1;
        return x;
    }

    static long inlinedInner(long n) {
        return notInlined(n) + 1;
    }

    static long inlinedOuter(long n) {
        return inlinedInner(n) ^ 7;
    }

    static long aroundInlined(long n) {
        long x = 0;
        for (long i = 0; i < n / 2000; i++)
            x += inlinedOuter(2000);
        return x;
    }

    static long thrower(int depth, long n) {
        if (depth == 0)
            throw new IllegalStateException("caught");
        return thrower(depth - 1, n) + 1;
    }

    static long catches(long n) {
        long caught = 0;
        for (long i = 0; i < n / 5000; i++)
            try {
                caught += thrower(12, i);
            } catch (IllegalStateException e) {
                caught++;
            }
        return caught;
    }

    static long streams(long n) {
        return LongStream.range(0, n / 16).map(i -> i * 31 ^ n).filter(i -> (i & 5) != 4).sum();
    }

    static long deflates(long n) {
        Deflater d = new Deflater(6);
        long bytes = 0;
        for (long i = 0; i < n / 2000000 + 1; i++) {
            d.reset();
            d.setInput(INPUT);
            d.finish();
            bytes += d.deflate(OUTPUT);
        }
        d.end();
        return bytes;
    }

    static long copies(long n) {
        for (long i = 0; i < n / 2000; i++)
            System.arraycopy(INPUT, 3, OUTPUT, 1 + (int) (i & 1023), INPUT.length - 9);
        return OUTPUT[n % 2 == 0 ? 1 : 2];
    }

    static long makesGarbage(long n) {
        for (long i = 0; i < n / 200; i++)
            KEPT[(int) (i & 63)] = new byte[512 + (int) (i & 1023)];
        return n;
    }

    static long inThread(long n) {
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 3935559000370003845L + 1;
        return x;
    }

    static void part(int which, long n) {
        long at = THREADS.getCurrentThreadCpuTime();
        switch (which) {
            case 0: sink += leaf(n); break;
            case 1: sink += recursive(30, n); break;
            case 2: sink += aroundInlined(n); break;
            case 3: sink += catches(n); break;
            case 4: sink += streams(n); break;
            case 5: sink += deflates(n); break;
            case 6: sink += copies(n); break;
            case 7: sink += makesGarbage(n); break;
            default: sink += inThread(n); break;
        }
        SPENT[which] += THREADS.getCurrentThreadCpuTime() - at;
    }

    static long processTime() {
        return ((com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        long budget = (long) (Double.parseDouble(args[1]) * 1e9);
        // interpreted code takes longer
        long scale = args.length > 2 ? Long.parseLong(args[2]) : 1;
        Dice dice = new Dice(System.nanoTime());
        for (int i = 0; i < INPUT.length; i++)
            INPUT[i] = (byte) (dice.below(16) * dice.below(16));
        processTime();
        THREADS.getCurrentThreadCpuTime();
        System.out.println("ready");
        System.in.read();
        long first = processTime();
        Thread other = new Thread(() -> {
            Dice own = new Dice(System.nanoTime());
            long at = THREADS.getCurrentThreadCpuTime();
            while (THREADS.getCurrentThreadCpuTime() - at < budget / 6)
                part(8, (1000000 + own.below(4000000)) / scale);
        });
        other.start();
        while (processTime() - first < budget)
            part(dice.below(8), (1000000 + dice.below(4000000)) / scale);
        other.join();
        long total = processTime() - first;
        try (FileWriter out = new FileWriter(args[0], true)) {
            for (int i = 0; i < NAMES.length; i++)
                out.write(NAMES[i] + " " + SPENT[i] + "\n");
            out.write("total " + total + "\n");
        }
        System.out.println("done");
        System.in.read();
    }
}
