//! The cost of maintenance. Run by hand:
//! `cargo test --release -p stasis-engine --lib scale -- --ignored --nocapture`

use super::*;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {:.1} ms", seconds * 1e3);
    (result, seconds)
}

/// An image of 17,000 pages in runs of a few pages: a Python process has about 3,000.
fn like_python(bed: &Bed, base: &Pack, own: &Pack, from: u64) -> Image {
    let mut manifest = manifest(&[(base, 0..0), (own, 0..0)], bed.store.number());
    let run = |index: u64| {
        let of_base = !index.is_multiple_of(100);
        let slot = if of_base { index * 5 } else { from + index / 100 };
        let count = if of_base { 5 } else { 1 };
        PageRun { page: index * 8, count, pack: u32::from(!of_base), slot }
    };
    manifest.memory[0].runs = (0..3000).map(run).collect();
    bed.store.write_image(manifest).expect("write")
}

/// The longest wait of a thread that continuously requests pages.
fn longest_look(bed: &Bed, over: &AtomicBool) -> f64 {
    let hash = stasis_image::PageHash::of(&page(5));
    let mut longest = 0.0_f64;
    while !over.load(Ordering::Relaxed) {
        let start = Instant::now();
        assert!(bed.store.find_page(&hash).is_some());
        longest = longest.max(start.elapsed().as_secs_f64());
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    longest
}

#[test]
#[ignore = "a measurement"]
fn a_thousand_images() {
    let bed = Bed::new();
    let base = bed.pack(0..17_000);
    let images: Vec<ImageId> = (0..1000)
        .map(|number| {
            let own = bed.pack(100_000 + number * 30..100_030 + number * 30);
            like_python(&bed, &base, &own, 0).id
        })
        .collect();
    let bytes: u64 = images.iter().map(|id| names::disk_bytes(&bed.store.image_path(*id))).sum();
    println!("1000 images, {} KiB each", bytes / 1000 / 1024);
    drop(base);
    let keep: HashSet<ImageId> = images.iter().copied().collect();
    let (collected, _) = timed("collect, nothing to do", || bed.store.collect(&keep));
    assert_eq!(collected.expect("collect"), Collected::default());
    let half: HashSet<ImageId> = images.iter().step_by(2).copied().collect();
    timed("stats", || bed.store.stats(&keep).expect("stats"));
    let groups: Vec<_> =
        images.chunks(10).map(|part| (part[0].to_string(), part.to_vec())).collect();
    timed("usage of 100 groups", || bed.store.usage(&groups).expect("usage"));
    let over = AtomicBool::new(false);
    let (collected, stall) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| longest_look(&bed, &over));
        let (collected, _) = timed("collect half of them", || bed.store.collect(&half));
        over.store(true, Ordering::Relaxed);
        (collected, looks.join().expect("a thread"))
    });
    println!("  the longest a capture waited: {:.1} ms", stall * 1e3);
    assert_eq!(collected.expect("collect").images, 500);
    let go = |_| ControlFlow::Continue(());
    let (checked, _) = timed("check", || bed.store.check(&half, Repair::Nothing, go));
    let checked = checked.expect("check");
    println!("  {} pages in {} packs", checked.pages, checked.packs);
    assert!(checked.findings.is_empty());
}

#[test]
#[ignore = "a measurement"]
fn forms() {
    let bed = Bed::new();
    let (pages, mb) = (50_000_u64, 50_000.0 * 4096.0 / 1e6);
    let pack = bed.pack(0..pages);
    let root = pack.root();
    let image = bed.image(&[(&pack, 0..pages)]);
    drop(pack);
    let read = |what: &str| {
        bed.store.forget();
        let pack = bed.store.pack(root).expect("open");
        let mut buf = vec![0; 64 * PAGE_SIZE];
        let (_, seconds) = timed(what, || {
            (0..pages / 64).for_each(|piece| pack.read(piece * 64, &mut buf).expect("read"));
        });
        println!("  {:.0} MB/s", mb / seconds);
        let mut page = vec![0; PAGE_SIZE];
        let (_, seconds) = timed("  1000 pages here and there", || {
            (0..1000).for_each(|n| pack.read(n * 7919 % pages, &mut page).expect("read"));
        });
        println!("    {:.0} us each", seconds * 1e3);
    };
    read("read plain, verified");
    let (reformed, seconds) = timed("compress", || bed.store.compress(root).expect("compress"));
    println!("  {:.0} MB/s, {reformed:?}", mb / seconds);
    read("read cold, verified");
    let (_, seconds) = timed("thaw", || bed.store.thaw(root).expect("thaw"));
    println!("  {:.0} MB/s", mb / seconds);
    assert!(bed.is_whole(image.id));
}
