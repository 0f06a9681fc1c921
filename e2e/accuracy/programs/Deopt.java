// SPDX-License-Identifier: Apache-2.0

// Deopt: Java: code that does not stay: each round loads its classes anew, has them compiled for
// the one subclass that there is, and then loads another one, which makes what was compiled void
// while it runs. Classes and code are unloaded and their memory is used again. Its protocol is
// burn.h's. From JDK 8 on.

import java.io.ByteArrayOutputStream;
import java.io.FileWriter;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.function.LongUnaryOperator;

public class Deopt {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static volatile long sink;

    public abstract static class Shape {
        abstract long step(long x);
    }

    public static class Square extends Shape {
        long step(long x) {
            return x * 6364136223846793005L + 1;
        }
    }

    public static class Circle extends Shape {
        long step(long x) {
            return x * 2862933555777941757L + 3;
        }
    }

    public static class Round implements LongUnaryOperator {
        static long spin(Shape s, Round round, long n) {
            long x = n;
            for (long i = 0; i < n; i++) {
                if (i == n / 2)
                    x += round.other().hashCode();      // spin() is void now, and goes on
                x = s.step(x);
            }
            return x;
        }

        Object other() {
            try {
                Class<?> circle = getClass().getClassLoader().loadClass("Deopt$Circle");
                return circle.getDeclaredConstructor().newInstance();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }

        public long applyAsLong(long n) {
            return spin(new Square(), this, n);
        }
    }

    // A class loader that has classes of its own of everything here but Deopt itself.
    static class Own extends ClassLoader {
        Own() {
            super(Deopt.class.getClassLoader());
        }

        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            Class<?> c = findLoadedClass(name);
            if (c != null || !name.startsWith("Deopt$"))
                return c != null ? c : super.loadClass(name, resolve);
            try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                for (int b; (b = in.read()) >= 0;)
                    bytes.write(b);
                return defineClass(name, bytes.toByteArray(), 0, bytes.size());
            } catch (IOException e) {
                throw new ClassNotFoundException(name, e);
            }
        }
    }

    static long rounds(long n) throws ReflectiveOperationException {
        Class<?> type = new Own().loadClass("Deopt$Round", true);
        Object round = type.getDeclaredConstructor().newInstance();
        return ((LongUnaryOperator) round).applyAsLong(n);
    }

    static long steady(long n) {
        long x = n | 1;
        for (; n > 0; n--)
            x = x * 3202034522624059733L + 1;
        return x;
    }

    public static void main(String[] args) throws IOException, ReflectiveOperationException {
        long budget = (long) (Double.parseDouble(args[1]) * 1e9), roundsNs = 0, steadyNs = 0;
        System.out.println("ready");
        System.in.read();
        long first = THREADS.getCurrentThreadCpuTime(), at = first, state = System.nanoTime() | 1;
        while (at - first < budget) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            long n = 500000 + (state >>> 1) % 2000000, now;
            sink += rounds(n);
            now = THREADS.getCurrentThreadCpuTime();
            roundsNs += now - at;
            at = now;
            sink += steady(3 * n);
            now = THREADS.getCurrentThreadCpuTime();
            steadyNs += now - at;
            at = now;
        }
        try (FileWriter out = new FileWriter(args[0], true)) {
            out.write("rounds " + roundsNs + "\nsteady " + steadyNs
                + "\ntotal " + (at - first) + "\n");
        }
        System.out.println("done");
        System.in.read();
    }
}
