//! Python in templates: the host's or an image's interpreter, a virtual environment, pip and uv.

use crate::environment::{
    Environment, HostTool, IndexSettings, InterpreterKit, LeftOut, PackageInstaller, ToolCheck,
};

/// The virtual environment. It is the user's own, so a plain `pip install` works.
const VENV: &str = "/opt/venv";
const INTERPRETER: &str = "/opt/venv/bin/python";

/// Asked of the interpreter itself, since the name on the path may be a shim that picks another.
const LOCATE: &str = r#"
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
library = sysconfig.get_config_var("INSTSONAME") or ""
places = [sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_prefix, "lib")]
multiarch = sysconfig.get_config_var("MULTIARCH")
places += [os.path.join(place, multiarch) for place in list(places) if multiarch]
found = [os.path.join(place, library) for place in places if ".so" in library]
found = [path for path in found if os.path.exists(path)]
print(json.dumps({
    "executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "prefix": os.path.realpath(sys.base_prefix),
    "stdlib": os.path.realpath(paths["stdlib"]),
    "platstdlib": os.path.realpath(paths["platstdlib"]),
    "include": os.path.realpath(sysconfig.get_config_var("INCLUDEPY") or paths["include"]),
    "library": os.path.realpath(found[0]) if found else None,
    "version": sys.version.split()[0],
    "build": sys.version,
    "numbers": list(sys.version_info[:2]),
}))
"#;

const DESCRIBE: &str = r#"
import importlib.util, json, platform, sysconfig
print(json.dumps({
    "site": sysconfig.get_path("purelib"),
    "version": platform.python_version(),
    "bootstraps": importlib.util.find_spec("ensurepip") is not None,
}))
"#;

const LIST: &str = r#"
import importlib.metadata, sys
found = importlib.metadata.distributions(path=sys.argv[1:])
print(*sorted({f"{one.metadata['Name'].lower()}=={one.version}" for one in found}), sep="\n")
"#;

pub static ENVIRONMENT: Environment = Environment {
    title: "Python",
    program: "python3",
    versioned: "python",
    elsewhere: "/usr/bin/python3",
    names: &["python3", "python"],
    oldest: (3, 9),
    host_hint: "install Python 3.9 or later, or name one: python = \"/path/to/python3\"",
    image_hint: "choose an image with Python 3.9 or later, such as one of the official python \
                 images",
    image: "python:3.12-slim",
    debian: "python3,python3-venv",
    locate: &["-I", "-c", LOCATE],
    left_out: LeftOut {
        // of the standard library: tests, editors and what needs a display
        names: &[
            "test",
            "tests",
            "idlelib",
            "idle_test",
            "turtledemo",
            "site-packages",
            "dist-packages",
            "EXTERNALLY-MANAGED",
        ],
        starts: &["_tkinter.", "config-"],
        ends: &[".opt-1.pyc", ".opt-2.pyc", ".a"],
    },
    dir: VENV,
    interpreter: INTERPRETER,
    kit: KIT,
    make: &["-I", "-m", "venv", "--without-pip"],
    with_base: "--system-site-packages",
    make_hint: "the interpreter needs its modules venv and json",
    describe: &["-I", "-c", DESCRIBE],
    list: &["-I", "-c", LIST],
    code: "-c",
    // tests are hardly ever imported, and files that are no Python of this version (templates,
    // examples of bad syntax) do not compile
    compile: &["-m", "compileall", "-qq", "-j", "0", "-x", "/tests?/"],
    // pip compiled itself, tests and all, when it was put there: with times of then
    compile_again: (&["-m", "compileall", "-qq", "-f", "-j", "0"], "pip"),
    bootstrap: &["-m", "ensurepip", "--default-pip"],
    installer: PIP,
    fast_installer: UV,
    index: INDEX,
};

const KIT: InterpreterKit = InterpreterKit {
    dirs: &[VENV],
    bin: "/opt/venv/bin",
    env: &[
        ("VIRTUAL_ENV", VENV),
        // downloads would otherwise be kept with every machine, for ever
        ("PIP_NO_CACHE_DIR", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PIP_NO_INPUT", "1"),
        ("PIP_PROGRESS_BAR", "off"),
    ],
    // Not set in machines: the seed is drawn once, when the template starts, and is the same in
    // all machines made from it. That is as random to others as any, but not a secret between
    // machines.
    build: &[("PYTHONHASHSEED", "0")],
};

const PIP: PackageInstaller = PackageInstaller {
    name: "pip",
    words: &["-m", "pip", "install", "--no-compile"],
    no_builds: &["--only-binary", ":all:"],
    with: &[],
    cache: "PIP_CACHE_DIR",
    no_cache: Some("PIP_NO_CACHE_DIR"),
    fetch: [&[], &[]],
    fetch_env: &[],
};

/// Installs packages many times faster than pip.
const UV: PackageInstaller = PackageInstaller {
    name: "uv",
    words: &[
        "pip",
        "install",
        "--python",
        INTERPRETER,
        "--no-config",
        "--link-mode",
        "copy",
        "--no-progress",
    ],
    no_builds: &["--no-build"],
    with: &["pip"],
    cache: "UV_CACHE_DIR",
    no_cache: None,
    fetch: [
        &["-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "--target"],
        &["uv"],
    ],
    fetch_env: &[("PIP_ROOT_USER_ACTION", "ignore"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1")],
};

const INDEX: IndexSettings = IndexSettings {
    list: &["-m", "pip", "config", "list"],
    sections: &["global", "install", ":env:"],
    passed: &[
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "UV_INDEX_STRATEGY",
        "UV_INSECURE_HOST",
        "UV_HTTP_TIMEOUT",
        "UV_OFFLINE",
    ],
    translated: &[
        ("index-url", &["UV_DEFAULT_INDEX", "PIP_INDEX_URL"]),
        ("extra-index-url", &["UV_INDEX", "PIP_EXTRA_INDEX_URL"]),
        ("trusted-host", &["UV_INSECURE_HOST", "PIP_TRUSTED_HOST"]),
        ("default-timeout", &["UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"]),
        ("timeout", &["UV_HTTP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"]),
    ],
    certificate: ("cert", &["SSL_CERT_FILE", "PIP_CERT"]),
    links: ("find-links", &[("UV_FIND_LINKS", ","), ("PIP_FIND_LINKS", " ")]),
};

pub const TOOLS: &[HostTool] = &[
    HostTool {
        name: "Python with venv",
        required: true,
        costs: "the default template cannot be built",
        fix: "apt-get install python3 python3-venv",
        found: ToolCheck::Says {
            program: "python3",
            args: &[
                "-c",
                "import ensurepip, sys, venv; print(sys.version.split()[0], sys.executable)",
            ],
            otherwise: "no python3 that can import venv and ensurepip",
        },
    },
    HostTool {
        name: "uv",
        required: false,
        costs: "a template build downloads it first",
        fix: "pip install uv",
        found: ToolCheck::OnPath("uv"),
    },
];
