// SPDX-License-Identifier: Apache-2.0
/** Allocates objects that die young; prints once a second "rate N", objects a CPU second of its thread. */
import java.lang.management.ManagementFactory;

public class Storm {
    static volatile byte[] sink;

    public static void main(String[] args) {
        var threads = ManagementFactory.getThreadMXBean();
        long since = threads.getCurrentThreadCpuTime(), said = System.nanoTime(), n = 0;

        for (;;) {
            for (int i = 0; i < 10_000; i++) sink = new byte[32 + i % 512];
            n += 10_000;
            if (System.nanoTime() - said < 1_000_000_000) continue;
            long now = threads.getCurrentThreadCpuTime();
            System.out.println("rate " + n * 1_000_000_000L / (now - since));
            since = now;
            said = System.nanoTime();
            n = 0;
        }
    }
}
