import { build } from 'esbuild'

/** A script for browsers, such as the SDK, with all that it imports: `entry`, a file path, as one minified ES module. Rejects with what esbuild has to say. */
export async function bundleClient(entry: string): Promise<string> {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    legalComments: 'none',
    logLevel: 'silent',
  })
  return result.outputFiles[0]!.text
}
