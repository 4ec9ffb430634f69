import { spawnSync } from 'node:child_process'
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { bundlePage } from '../../dataplane/ops/page/bundle.ts'
import { copyAssets } from './assets.ts'
import { bundleClient } from './client-bundle.ts'
import { keepDeclarations } from './declarations.ts'

/** `npm run build`: the package in dist/: JavaScript, declarations, assets, and the SDK for browsers in one file. */

const root = fileURLToPath(new URL('../../', import.meta.url))
const dist = `${root}dist/`
const say = (text: string) => process.stdout.write(`${text}\n`)

await rm(dist, { recursive: true, force: true })

const compiler = fileURLToPath(new URL('../bin/tsc', import.meta.resolve('typescript')))
const compiled = spawnSync(process.execPath, [compiler, '-p', `${root}deploy/build/tsconfig.build.json`], {
  stdio: 'inherit',
})
if (compiled.status !== 0) {
  say('dist/ was not built: the sources do not compile')
  process.exit(1)
}
const declarations = await keepDeclarations(dist, [
  'dataplane/index.d.ts',
  'client/index.d.ts',
  'client/motion.d.ts',
  'client/react.d.ts',
  'test/kit/index.d.ts',
])
say(`compiled to dist/, with ${declarations} declarations`)

say(`copied ${await copyAssets(root, dist)} other files`)

await writeFile(`${dist}client/roomful.min.js`, await bundleClient(`${dist}client/index.js`))
say('bundled dist/client/roomful.min.js')

// It needs React, which an installed package does not bring.
const cards = `${dist}examples/cards/page.js`
await writeFile(cards, await bundleClient(cards))
say('bundled the page of the card game')

for (const page of ['dataplane/ops/page/', 'deploy/playground/']) {
  await mkdir(dist + page, { recursive: true })
  const parts = await bundlePage(pathToFileURL(root + page))
  await writeFile(`${dist + page}page.json`, JSON.stringify(parts))
}
say('bundled the admin page and the playground')

await chmod(`${dist}deploy/cli/roomful.js`, 0o755)
