import { expect, it, onTestFinished } from 'vitest'
import { expectClose } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'

it('a cordoned node keeps its sessions, also over a lost connection, and takes no new one until it is uncordoned', async () => {
  let cordoned = false
  const test = await TestGateway.start({}, { cordoned: () => cordoned })
  onTestFinished(() => test.close())
  const { client, welcome, snapshot } = await test.join()
  cordoned = true
  await client.roundTrip()
  await expectClose(await test.present(), 'overloaded', /takes no new sessions/)
  await test.owner.lose(client)
  const again = await test.resume(welcome, [snapshot])
  await again.next('welcome')
  cordoned = false
  expect((await test.hello()).welcome.session_id).not.toBe(welcome.session_id)
})
