import { fileURLToPath } from 'node:url'
import { bundleClient, describeSize } from './client-bundle.ts'

const entry = fileURLToPath(new URL('../../client/index.ts', import.meta.url))
process.stdout.write(`roomful/client: ${describeSize(await bundleClient(entry))}\n`)
