// SPDX-License-Identifier: Apache-2.0
/**
 * Three methods that take 50, 30 and 20 % of the CPU time, 2 ms at a time, in an order that is
 * drawn by chance.
 */
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

public class Shares {
    private static final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    static long sum;

    static void burn(long until) {
        while (threads.getCurrentThreadCpuTime() < until)
            for (int i = 0; i < 20_000; i++) sum += (long) i * i % 7;
    }

    static long inTwoMilliseconds() {
        return threads.getCurrentThreadCpuTime() + 2_000_000;
    }

    static void share_50() { burn(inTwoMilliseconds()); }
    static void share_30() { burn(inTwoMilliseconds()); }
    static void share_20() { burn(inTwoMilliseconds()); }

    void run() {
        java.util.Random random = new java.util.Random();

        for (;;) {
            int dice = random.nextInt(10);

            if (dice < 5) share_50();
            else if (dice < 8) share_30();
            else share_20();
        }
    }

    public static void main(String[] args) {
        new Shares().run();
    }
}
