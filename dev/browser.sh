#!/usr/bin/env bash
# A Chromium without windows, with what it needs beside the C library: browser.sh VERSION DIRECTORY.
# It comes whole from npm, so nothing is installed on the host.
#
#   DIRECTORY/chromium    DIRECTORY/lib    DIRECTORY/fonts, fonts.conf
set -euo pipefail
version=$1 to=$2

rm -rf "$to"
mkdir -p "$to"
cd "$to"
npm pack --silent "@sparticuz/chromium@$version" >/dev/null
tar xzf ./*.tgz --strip-components 2 package/bin
rm ./*.tgz
node -e '
  const { createReadStream, createWriteStream } = require("node:fs");
  const { pipeline } = require("node:stream/promises");
  const { createBrotliDecompress } = require("node:zlib");
  const unpack = (name) =>
    pipeline(createReadStream(`${name}.br`), createBrotliDecompress(), createWriteStream(name));
  Promise.all(["chromium", "al2023.tar", "fonts.tar"].map(unpack));
'
chmod +x chromium
tar xf al2023.tar
tar xf fonts.tar fonts
rm ./*.br ./*.tar
cat >fonts.conf <<END
<?xml version="1.0"?>
<fontconfig>
  <dir>$to/fonts</dir>
  <cachedir>$to/fonts/cache</cachedir>
</fontconfig>
END
LD_LIBRARY_PATH="$to/lib" ./chromium --version >/dev/null
