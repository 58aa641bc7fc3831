/**
 * The service of this computer, found like the CLI does: configuration, login, data directory. In a
 * browser, and in a runtime without `process.getBuiltinModule`, there is none.
 *
 * @module
 */

interface Disk {
  readFileSync(path: string, encoding: "utf8"): string;
  statSync(path: string): { mode: number };
}

interface Runtime {
  env?: Record<string, string | undefined>;
  getBuiltinModule?(name: string): unknown;
}

const SETTING =
  /^(url|token|data_dir)[ \t]*=[ \t]*(?:"([^"\\\n]*)"|'([^'\n]*)')[ \t]*(?:#.*)?\r?$/gm;
const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

function runtime(): Runtime {
  return (globalThis as { process?: Runtime }).process ?? {};
}

/** A variable of the environment, if there is one that may be read. */
function variable(name: string): string | undefined {
  try {
    return runtime().env?.[name] || undefined;
  } catch {
    return undefined;
  }
}

/** A directory of the XDG convention. */
function home(name: string, below: string): string {
  const given = variable(name);
  return given?.startsWith("/") ? given : `${variable("HOME") ?? ""}/${below}`;
}

function read(path: string, onlyOwn: boolean): string | undefined {
  try {
    const disk = runtime().getBuiltinModule?.("node:fs") as Disk | undefined;
    if (disk === undefined || (onlyOwn && disk.statSync(path).mode & 0o077)) return undefined;
    return disk.readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

interface Settings {
  url?: string | undefined;
  token?: string | undefined;
  data_dir?: string | undefined;
}

/** Plain strings at the top of a TOML file. */
function settings(text = ""): Settings {
  const [top = ""] = text.split(/^[ \t]*\[/m, 1);
  const lines = [...top.matchAll(SETTING)];
  return Object.fromEntries(lines.map(([, name, double, single]) => [name, double ?? single]));
}

/** Address, token and data directory of the CLI's configuration file. */
function config(): Settings {
  const usual = `${home("XDG_CONFIG_HOME", ".config")}/stasis/config.toml`;
  return settings(read(variable("STASIS_CONFIG") ?? usual, false));
}

/** Address and token of the stored login; none if other users can read the file. */
function login(): Settings {
  return settings(read(`${home("XDG_CONFIG_HOME", ".config")}/stasis/login.toml`, true));
}

/** The address of the service: from the environment, the configuration, or the login. */
export function urlHere(): string | undefined {
  return variable("STASIS_URL") ?? (config().url || login().url || undefined);
}

/**
 * The token for a service: from the environment, from the configuration or the login if they name
 * this service, or from the data directory if the service is local.
 */
export function tokenOf(url: string): string | undefined {
  const [own, kept] = [config(), login()];
  const configured = (own.url ?? url).replace(/\/+$/, "") === url ? own.token : undefined;
  const loggedIn = kept.url === url ? kept.token : undefined;
  const token = variable("STASIS_TOKEN") ?? configured ?? loggedIn;
  if (token) return token;
  if (!URL.canParse(url) || !LOOPBACK.includes(new URL(url).hostname)) return undefined;
  const usual = `${home("XDG_DATA_HOME", ".local/share")}/stasis`;
  const data = variable("STASIS_DATA_DIR") ?? own.data_dir ?? usual;
  return read(`${data}/token`, false)?.trim() || undefined;
}
