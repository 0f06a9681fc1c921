// SPDX-License-Identifier: Apache-2.0
// What dwarf_test.c compiles with rustc: iterators and closures that end up in one function.
mod geo {
    pub struct P {
        pub x: f64,
        pub y: f64,
    }
    impl P {
        #[inline(always)]
        pub fn len(&self) -> f64 {
            (self.x * self.x + self.y * self.y).sqrt()
        }
    }
    pub fn sum(v: &[P]) -> f64 {
        v.iter().map(|p| p.len()).filter(|l| *l > 1.0).sum()
    }
}

fn main() {
    let mut v: Vec<geo::P> = std::env::args()
        .map(|a| geo::P { x: a.len() as f64, y: 2.0 })
        .collect();
    v.sort_by(|a, b| a.x.total_cmp(&b.x));
    println!("{}", geo::sum(&v));
}
