/**
 * Local files: uploads and downloads, in Node, Deno and Bun.
 *
 * @module
 */

import { StasisError } from "./errors.js";
import type { Files } from "./files.js";
import type { FileInfo } from "./types.js";

const PIECE = 1 << 20;

interface Handle {
  read(into: Uint8Array, offset: number, length: number): Promise<{ bytesRead: number }>;
  write(from: Uint8Array, offset: number): Promise<{ bytesWritten: number }>;
  stat(): Promise<{ mode: number }>;
  close(): Promise<void>;
}

interface Entry {
  name: string;
  isDirectory(): boolean;
  isFile(): boolean;
}

/** The used part of node:fs/promises, which a browser does not have. */
interface Disk {
  open(path: string, flags: string): Promise<Handle>;
  readdir(path: string, options: { withFileTypes: true }): Promise<Entry[]>;
  mkdir(path: string, options: { recursive: true }): Promise<unknown>;
  rename(from: string, to: string): Promise<void>;
  rm(path: string, options: { force: true }): Promise<void>;
}

async function disk(): Promise<Disk> {
  // not a constant, so that what packs a program for browsers does not look for it
  const name = ["node", "fs/promises"].join(":");
  try {
    return (await import(name)) as Disk;
  } catch (cause) {
    const hint = "write() and read() take and give bytes";
    throw new StasisError("client.file", "this program has no files", { cause, hint });
  }
}

export function upload(files: Files, local: string, path: string): Promise<FileInfo> {
  return opened(local, async (handle) => {
    const mode = ((await handle.stat()).mode & 0o777).toString(8);
    return files.write(path, pieces(handle), { mode });
  });
}

/** The bytes of a file, while `use` runs. */
export function load<T>(
  local: string,
  use: (content: ReadableStream<Uint8Array>) => Promise<T>,
): Promise<T> {
  return opened(local, (handle) => use(pieces(handle)));
}

async function opened<T>(local: string, use: (handle: Handle) => Promise<T>): Promise<T> {
  const handle = await (await disk()).open(local, "r");
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}

function pieces(handle: Handle): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      const piece = new Uint8Array(PIECE);
      const { bytesRead } = await handle.read(piece, 0, PIECE);
      if (bytesRead > 0) controller.enqueue(piece.subarray(0, bytesRead));
      else controller.close();
    },
  });
}

export async function uploadDir(files: Files, local: string, path: string): Promise<number> {
  let count = 0;
  for (const entry of await (await disk()).readdir(local, { withFileTypes: true })) {
    const here = `${local}/${entry.name}`;
    const there = path ? `${path}/${entry.name}` : entry.name;
    if (entry.isDirectory()) {
      count += await uploadDir(files, here, there);
    } else if (entry.isFile()) {
      await upload(files, here, there);
      count += 1;
    }
  }
  return count;
}

/** Writes received data to a file, which gets its name when it is complete. */
export async function save(from: AsyncIterable<Uint8Array>, local: string): Promise<void> {
  const fs = await disk();
  const part = `${local}.part`;
  try {
    const handle = await fs.open(part, "w");
    try {
      for await (const piece of from) {
        for (let at = 0; at < piece.length; ) at += (await handle.write(piece, at)).bytesWritten;
      }
    } finally {
      await handle.close();
    }
    await fs.rename(part, local);
  } catch (failure) {
    await fs.rm(part, { force: true });
    throw failure;
  }
}

export async function downloadDir(files: Files, path: string, local: string): Promise<number> {
  await (await disk()).mkdir(local, { recursive: true });
  let count = 0;
  for await (const info of files.list(path)) {
    const name = info.path.slice(info.path.lastIndexOf("/") + 1);
    // a name from a machine is never a way out of the directory here
    if (["", ".", ".."].includes(name) || name.includes("\\")) continue;
    const here = `${local}/${name}`;
    if (info.kind === "directory") {
      count += await downloadDir(files, info.path, here);
    } else if (info.kind === "file") {
      await files.download(info.path, here);
      count += 1;
    }
  }
  return count;
}
