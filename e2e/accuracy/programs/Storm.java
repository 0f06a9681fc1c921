// SPDX-License-Identifier: Apache-2.0
/**
 * Storm [MS]: allocates objects that die young. Every MS milliseconds it prints "rate
 * OBJECTS_A_CPU_SECOND OBJECTS CPU_NS", the last two since it began. CPU time is the process's,
 * because collecting garbage costs, too.
 */
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

public class Storm {
    static volatile byte[] sink;

    static void storms() {
        for (int i = 0; i < 10_000; i++) sink = new byte[32 + i % 512];
    }

    public static void main(String[] args) {
        var system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        long period = 1_000_000L * (args.length > 0 ? Long.parseLong(args[0]) : 1000);
        long since = system.getProcessCpuTime(), due = System.nanoTime() + period;
        long n = 0, before = 0;

        for (;;) {
            storms();
            n += 10_000;
            if (System.nanoTime() - due < 0) continue;
            long now = system.getProcessCpuTime();
            long rate = (n - before) * 1_000_000_000L / Math.max(1, now - since);
            System.out.println("rate " + rate + " " + n + " " + now);
            due = System.nanoTime() + period;
            since = now;
            before = n;
        }
    }
}
