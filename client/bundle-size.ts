/** `tsx client/bundle-size.ts`: bundles the SDK for browsers as an application would, prints its size, and exits 1 above the limit. */
// biome-ignore lint/style/noRestrictedImports: a developer's command, no part of the SDK
import { fileURLToPath } from 'node:url'
// biome-ignore lint/style/noRestrictedImports: a developer's command, no part of the SDK
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

/** Limit of the minified and gzipped bundle, in bytes. */
const LIMIT = 21 * 1024

/** Returns the SDK as one ES module for browsers. Rejects if the bundler reports a warning. */
export async function bundle({ minify }: { minify: boolean }): Promise<Uint8Array> {
  const { outputFiles, warnings } = await build({
    entryPoints: [fileURLToPath(new URL('./index.ts', import.meta.url))],
    bundle: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    minify,
    write: false,
    logLevel: 'silent',
  })
  if (warnings.length > 0) throw new Error(warnings.map(({ text }) => text).join('\n'))
  return outputFiles[0]!.contents
}

/** Returns the sizes of the bundle, in bytes. */
async function bundleSize(): Promise<{ raw: number; min: number; gzip: number }> {
  const [raw, min] = await Promise.all([bundle({ minify: false }), bundle({ minify: true })])
  return { raw: raw.length, min: min.length, gzip: gzipSync(min, { level: 9 }).length }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { raw, min, gzip } = await bundleSize()
  process.stdout.write(`roomful/client: ${raw} bytes, ${min} minified, ${gzip} gzipped (limit ${LIMIT})\n`)
  if (gzip > LIMIT) process.exitCode = 1
}
