import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { defineRoom } from '../dataplane/index.ts'
import { startService } from '../test/support/cluster.ts'
import { ROOT } from '../test/support/pages.ts'
import { newFolder, runEnvironment } from '../test/support/run-folder.ts'

const run = promisify(execFile)

const counter = defineRoom({
  type: 'counter',
  create: () => ({ count: 0 }),
  messages: {
    add: {
      handle(state) {
        state.count += 1
      },
    },
  },
})

it('The client plays in React Native, which has a window without events and no crypto', async () => {
  const service = await startService({ rooms: [counter] })
  onTestFinished(() => service.close())
  const file = join(await newFolder(), 'native.mts')
  await writeFile(
    file,
    `const { connect } = await import('${ROOT}client/index.ts')
    globalThis.window = {}
    Object.defineProperty(globalThis, 'crypto', { value: undefined })
    const client = await connect('${service.wsUrl}', ${JSON.stringify(await service.login())})
    const room = await client.join('counter')
    await room.send('add')
    const refused = await client.create('counter').catch(({ message }) => message)
    console.log(JSON.stringify({ state: room.state, refused }))
    client.close()`,
  )
  const { stdout } = await run(process.execPath, ['--import', 'tsx', file], {
    cwd: ROOT,
    env: runEnvironment(),
  })
  expect(JSON.parse(stdout)).toEqual({
    state: { count: 1 },
    refused: expect.stringContaining('import react-native-get-random-values'),
  })
})
