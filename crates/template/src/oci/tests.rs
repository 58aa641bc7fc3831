//! Layers, honest and hostile, and images in every form they come in.

use super::layer::{Budget, apply};
use super::{OciImage, store};
use crate::recipe::ImageSource;
use crate::tree::RootTree;
use crate::{Error, NoProgress};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// Writes layers, also malformed ones.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Layer {
        Layer(Builder::new(Vec::new()))
    }

    fn raw(mut self, name: &str, kind: EntryType, link: &str, text: &[u8]) -> Layer {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o4755 });
        header.set_size(text.len() as u64);
        header.set_mtime(1_600_000_000);
        header.set_uid(7);
        header.set_gid(4_000_000);
        header.set_cksum();
        self.0.append(&header, text).unwrap();
        self
    }

    fn file(self, name: &str, text: &str) -> Layer {
        self.raw(name, EntryType::Regular, "", text.as_bytes())
    }

    fn dir(self, name: &str) -> Layer {
        self.raw(name, EntryType::Directory, "", b"")
    }

    fn symlink(self, name: &str, target: &str) -> Layer {
        self.raw(name, EntryType::Symlink, target, b"")
    }

    fn link(self, name: &str, target: &str) -> Layer {
        self.raw(name, EntryType::Link, target, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// A root with something beside it that must stay as it is.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        Place { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn outside(&self) -> String {
        self.dir.path().join("outside").to_str().unwrap().to_owned()
    }

    fn apply(&self, layer: Layer) -> io::Result<()> {
        self.apply_within(layer, &mut Budget::default())
    }

    fn apply_within(&self, layer: Layer, budget: &mut Budget) -> io::Result<()> {
        apply(&RootTree::open(&self.root()).unwrap(), &layer.bytes()[..], budget)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.root().join(name)).unwrap()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root().join(dir)).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn is_untouched(&self) {
        let outside = Path::new(&self.outside()).to_owned();
        let names: Vec<_> =
            fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
        assert_eq!(fs::metadata(outside.join("secret")).unwrap().uid(), 0);
        assert_eq!(fs::read_dir(self.dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_layer_adds_files_links_and_directories() {
    let place = Place::new();
    let layer = Layer::new()
        .dir("usr/")
        .file("usr/a", "a")
        .symlink("b", "usr/a")
        .link("c", "usr/a")
        .raw("null", EntryType::Char, "", b"")
        .raw("pipe", EntryType::Fifo, "", b"")
        .file("made/on/the/way", "w");
    place.apply(layer).unwrap();
    assert_eq!(place.names(""), ["b", "c", "made", "usr"]);
    assert_eq!((place.text("b"), place.text("made/on/the/way")), ("a".into(), "w".into()));
    let about = fs::metadata(place.root().join("usr/a")).unwrap();
    assert_eq!(about.ino(), fs::metadata(place.root().join("c")).unwrap().ino());
    // no set-user-id, and an owner a machine can have
    assert_eq!(about.permissions().mode() & 0o7777, 0o755);
    assert_eq!((about.uid(), about.gid(), about.mtime()), (7, 65534, 1_600_000_000));
}

#[test]
fn whiteouts_remove_what_was_there_before() {
    let place = Place::new();
    let first = Layer::new().file("d/old", "1").file("d/both", "1").file("e/x", "1").file("f", "1");
    place.apply(first).unwrap();
    // the marker may come after the same layer's additions
    let second = Layer::new()
        .file("d/both", "2")
        .file("d/new", "2")
        .file("d/.wh..wh..opq", "")
        .file(".wh.f", "")
        .file("g", "2")
        .file(".wh.g", "")
        .file(".wh.never", "")
        .file("e/.wh.x", "");
    place.apply(second).unwrap();
    assert_eq!(place.names("d"), ["both", "new"]);
    assert_eq!(place.text("d/both"), "2");
    assert_eq!(place.names("e"), Vec::<String>::new());
    assert_eq!(place.names(""), ["d", "e", "g"]);
}

#[test]
fn a_kind_of_entry_replaces_another() {
    let place = Place::new();
    place.apply(Layer::new().file("a/x", "1").file("b", "1").symlink("c", "a")).unwrap();
    place.apply(Layer::new().file("a", "2").dir("b/").dir("c/").file("c/y", "2")).unwrap();
    assert_eq!(place.text("a"), "2");
    assert!(place.root().join("b").is_dir());
    assert!(!place.root().join("c").is_symlink());
    assert_eq!(place.text("c/y"), "2");
}

#[test]
fn names_that_climb_are_refused() {
    for name in ["../outside/x", "a/../../outside/x", "/../outside/x"] {
        let place = Place::new();
        assert!(place.apply(Layer::new().file(name, "x")).is_err(), "{name}");
        place.is_untouched();
    }
    let place = Place::new();
    place.apply(Layer::new().file("/etc/x", "x")).unwrap();
    assert_eq!(place.text("etc/x"), "x");
}

#[test]
fn links_lead_nowhere_but_into_the_root() {
    let place = Place::new();
    let outside = place.outside();
    let out = Layer::new().symlink("abs", &outside).symlink("rel", "../outside");
    place.apply(out).unwrap();
    // written through: either refused, or in the root
    for name in ["abs/secret", "rel/secret", "abs/.wh.secret", "rel/.wh..wh..opq"] {
        let _ = place.apply(Layer::new().file(name, "bad"));
        place.is_untouched();
    }
    let _ = place.apply(Layer::new().dir("abs/d/").dir("rel/"));
    place.is_untouched();
}

#[test]
fn a_file_is_never_written_through_a_link_of_its_name() {
    let place = Place::new();
    let secret = format!("{}/secret", place.outside());
    place.apply(Layer::new().symlink("x", &secret).file("x", "bad")).unwrap();
    assert_eq!(place.text("x"), "bad");
    place.is_untouched();
}

#[test]
fn a_hard_link_reaches_only_files_of_the_root() {
    let place = Place::new();
    let secret = format!("{}/secret", place.outside());
    let far = place.apply(Layer::new().symlink("d", &place.outside()).link("x", "d/secret"));
    assert!(far.is_err());
    assert!(place.apply(Layer::new().link("y", &secret)).is_err());
    assert!(place.apply(Layer::new().link("z", "../outside/secret")).is_err());
    place.is_untouched();
    assert_eq!(fs::metadata(secret).unwrap().nlink(), 1);
}

#[test]
fn a_layer_has_a_size_and_a_count() {
    let place = Place::new();
    let two = || Layer::new().file("a", "12345").file("b", "1");
    let mut budget = Budget { bytes: 5, entries: 10 };
    assert!(place.apply_within(two(), &mut budget).is_err());
    let mut budget = Budget { bytes: 100, entries: 1 };
    assert!(place.apply_within(two(), &mut budget).is_err());
    let nameless = place.apply(Layer::new().file("a/.wh.", "")).unwrap_err();
    assert!(nameless.to_string().contains("without a name"), "{nameless}");
}

/// Writes an image in the OCI layout, with one layer of each compression.
fn layout(dir: &Path) -> (String, Vec<Vec<u8>>) {
    fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    let plain = Layer::new().file("usr/bin/python3", "#!/bin/sh").file("a", "1").bytes();
    let zipped = Layer::new().file("b", "2").file(".wh.a", "").bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&zipped).unwrap();
    let zstd = zstd::encode_all(&Layer::new().file("c", "3").bytes()[..], 1).unwrap();
    let layers = vec![plain, gzip.finish().unwrap(), zstd];
    let described: Vec<_> = layers.iter().map(|layer| blob(dir, layer)).collect();
    let config = br#"{"config": {"Env": ["PATH=/usr/bin", "A=b"], "User": "app"}}"#;
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(dir, config),
        "layers": described,
    });
    let manifest = blob(dir, manifest.to_string().as_bytes());
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    (manifest["digest"].as_str().unwrap().to_owned(), layers)
}

fn blob(dir: &Path, bytes: &[u8]) -> serde_json::Value {
    let hash = store::hash(bytes).unwrap();
    fs::write(dir.join("blobs/sha256").join(&hash), bytes).unwrap();
    serde_json::json!({
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": format!("sha256:{hash}"),
        "size": bytes.len(),
    })
}

fn pack(dir: &Path, to: &Path) {
    let mut builder = Builder::new(fs::File::create(to).unwrap());
    builder.append_dir_all(".", dir).unwrap();
    builder.finish().unwrap();
}

/// Lays an image out and looks at what all test images hold.
fn about() -> &'static stasis_agent::environment::Environment {
    stasis_agent::default().runtime().environment().expect("an environment")
}

fn lays(source: &ImageSource, cache: &Path) -> crate::Result<String> {
    let root = tempfile::tempdir().unwrap();
    let laid = OciImage::find(source, cache)?.lay(about(), None, root.path(), &NoProgress)?;
    let mut names: Vec<_> =
        fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "c", "usr"]);
    assert_eq!((laid.env["A"].as_str(), laid.user.as_deref()), ("b", Some("app")));
    assert_eq!(laid.interpreter, Path::new("/usr/bin/python3"));
    Ok(laid.base)
}

#[test]
fn a_layout_and_its_archive_are_the_same_image() {
    let dir = tempfile::tempdir().unwrap();
    let (image, file) = (dir.path().join("image"), dir.path().join("image.tar"));
    let (digest, _) = layout(&image);
    pack(&image, &file);
    for source in [ImageSource::Layout(image), ImageSource::Archive(file)] {
        assert_eq!(lays(&source, dir.path()).unwrap(), digest);
        assert_eq!(OciImage::find(&source, dir.path()).unwrap().identity().unwrap(), digest);
    }
}

#[test]
fn a_damaged_file_is_refused_by_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let (_, layers) = layout(dir.path());
    let hash = store::hash(&layers[1][..]).unwrap();
    fs::write(dir.path().join("blobs/sha256").join(hash), b"something else").unwrap();
    let error = lays(&ImageSource::Layout(dir.path().to_owned()), dir.path()).unwrap_err();
    assert_eq!(error.code(), "template.image");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn an_archive_of_dockers_is_checked_against_its_config() {
    let dir = tempfile::tempdir().unwrap();
    let (image, file) = (dir.path().join("saved"), dir.path().join("saved.tar"));
    fs::create_dir_all(image.join("one")).unwrap();
    let layer = Layer::new().file("usr/bin/python3", "x").file("b", "").file("c", "").bytes();
    let save = |id: &str| {
        let config = serde_json::json!({
            "config": {"Env": ["PATH=/usr/bin", "A=b"], "User": "app"},
            "rootfs": {"diff_ids": [format!("sha256:{id}")]},
        });
        fs::write(image.join("config.json"), config.to_string()).unwrap();
        fs::write(image.join("one/layer.tar"), &layer).unwrap();
        let manifest = r#"[{"Config": "config.json", "Layers": ["one/layer.tar"]}]"#;
        fs::write(image.join("manifest.json"), manifest).unwrap();
        pack(&image, &file);
    };
    save(&store::hash(&layer[..]).unwrap());
    assert!(lays(&ImageSource::Archive(file.clone()), dir.path()).unwrap().starts_with("sha256:"));
    save(&"0".repeat(64));
    assert!(matches!(lays(&ImageSource::Archive(file.clone()), dir.path()), Err(Error::Image(_))));
}

#[test]
fn an_image_without_python_says_so() {
    let dir = tempfile::tempdir().unwrap();
    layout(dir.path());
    let source = ImageSource::Layout(dir.path().to_owned());
    let root = tempfile::tempdir().unwrap();
    let image = OciImage::find(&source, dir.path()).unwrap();
    let error = image.lay(about(), Some("3.99"), root.path(), &NoProgress).unwrap_err();
    assert_eq!(error.code(), "template.base");
    assert!(error.to_string().contains("no python3.99 on its PATH"), "{error}");
}

/// A registry on loopback that serves a layout; it ends with the test's process.
fn registry(dir: PathBuf, digest: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = serve(stream.unwrap(), &dir, &digest);
        }
    });
    port
}

fn serve(mut stream: TcpStream, dir: &Path, digest: &str) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (name, kind) = match path.rsplit_once('/').unwrap_or_default() {
        (_, "") => (None, "text/plain"),
        (before, _) if before.ends_with("/manifests") => {
            (digest.strip_prefix("sha256:"), "application/vnd.oci.image.manifest.v1+json")
        }
        (_, blob) => (blob.strip_prefix("sha256:"), "application/octet-stream"),
    };
    let body = name.map_or(Ok(Vec::new()), |name| fs::read(dir.join("blobs/sha256").join(name)));
    let status = if body.is_ok() { "200 OK" } else { "404 Not Found" };
    let body = body.unwrap_or_default();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

#[test]
fn an_image_is_fetched_from_a_registry_once() {
    let dir = tempfile::tempdir().unwrap();
    let (image, cache) = (dir.path().join("image"), dir.path().join("cache"));
    let (digest, layers) = layout(&image);
    let port = registry(image.clone(), digest.clone());
    let source = ImageSource::Reference(format!("127.0.0.1:{port}/some/image:latest"));
    assert_eq!(lays(&source, &cache).unwrap(), digest);
    // cached blobs are not fetched again
    let first = image.join("blobs/sha256").join(store::hash(&layers[0][..]).unwrap());
    fs::remove_file(&first).unwrap();
    assert_eq!(lays(&source, &cache).unwrap(), digest);
    // and changes of the registry are not trusted
    fs::write(&first, vec![b'x'; layers[0].len()]).unwrap();
    let error = lays(&source, &dir.path().join("other")).unwrap_err();
    assert!(["template.image", "template.base"].contains(&error.code()), "{error}");
}
