import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { connect } from 'roomful/client'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket } from 'ws'
import type { ConnectOptions } from '../../client/index.ts'
import { pythonPath } from '../support/debian-package.ts'
import { startCommand, startProgram } from '../support/program.ts'

const PACKAGE = fileURLToPath(new URL('../../clients/python', import.meta.url))
const DOCUMENTED = /"ws:\/\/localhost:4000"/
const page = readFileSync(`${PACKAGE}/README.md`, 'utf8')
const [bot = '', codeBot = ''] = [...page.matchAll(/```python\n(.*?)```/gs)].map(([, code]) => code!)

describe('clients/python/README.md', () => {
  let url = ''
  beforeAll(async () => {
    const ports = { CONTROL_PORT: '0', WS_PORT: '0', ADMIN_PORT: '0', EXAMPLES_PORT: '0' }
    const program = startProgram(['dev'], { ...ports, LOG_LEVEL: 'info' })
    url = (await program.said(/dev ready: .*websocket (ws:\/\/[\d.:]+)/))[1]!
    return () => void program.child.kill()
  })

  function run(code: string, ...words: string[]) {
    const program = startCommand(pythonPath(), ['-c', code, ...words], {
      PYTHONPATH: PACKAGE,
      PYTHONUNBUFFERED: '1',
    })
    onTestFinished(() => void program.child.kill())
    return program
  }

  it('has a bot that counts', async () => {
    expect(bot).toMatch(DOCUMENTED)
    const program = run(bot.replace(DOCUMENTED, `"${url}"`))
    expect(await program.ended).toBe(0)
    expect(program.output()).toMatch(
      /^milestone \{'count': 10\} \{'count': 10\}\n\{'count': 11\} \['mem_[\w-]+'\]\n$/,
    )
  })

  it('has a bot that joins with a code', async () => {
    const Socket = WebSocket as NonNullable<ConnectOptions['WebSocket']>
    const host = await connect(url, { dev: 'ada', WebSocket: Socket })
    onTestFinished(() => host.close())
    const room = await host.create('cards')
    const bot = codeBot.replace('dev="bot"', `"${url}", dev="bot"`)
    const program = run(bot, room.code!.toLowerCase())
    await program.said(/'phase': 'playing'/)
    expect(room.members.map(({ sub }) => sub)).toEqual(['ada', 'bot'])
    const late = run(bot, room.code!)
    await late.said(/the room has refused it: .*a game is being played/)
  })
})
