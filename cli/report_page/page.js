/* SPDX-License-Identifier: Apache-2.0 */
/* page.js -- readouts for the drawings: the nearest point of a curve, the action under the pointer.
 * The page is complete without this script. */
'use strict';
(function () {
  var data = JSON.parse(document.getElementById('data').textContent);
  var runs = Array.isArray(data) ? data : [data];

  function numbers(element, name) {
    return element.dataset[name].split(',').map(Number);
  }
  /* position of the pointer in the units of the drawing */
  function pointer(svg, event) {
    var box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return { x: (event.clientX - box.left) * view.width / box.width,
             y: (event.clientY - box.top) * view.height / box.height };
  }
  function short(value) {
    return Number(value.toPrecision(5)).toString();
  }

  /* --- curves --- */
  function nearest(points, step) {
    var best = null;
    points.forEach(function (p) {
      if (p[1] === null) return;
      if (best === null || Math.abs(best[0] - step) > Math.abs(p[0] - step)) best = p;
    });
    return best;
  }
  document.querySelectorAll('svg.curve').forEach(function (svg) {
    var x = numbers(svg, 'x'), box = numbers(svg, 'box'), name = svg.dataset.curve;
    var out = svg.parentNode.querySelector('output');
    var line = document.createElementNS(svg.namespaceURI, 'path');
    line.setAttribute('class', 'cursor');
    svg.appendChild(line);
    svg.addEventListener('pointermove', function (event) {
      var part = (pointer(svg, event).x - box[0]) / (box[1] - box[0]);
      var step = x[0] + Math.min(1, Math.max(0, part)) * (x[1] - x[0]);
      var found = [];
      runs.forEach(function (run) {
        var p = run.curves[name] ? nearest(run.curves[name], step) : null;
        if (p) found.push(p);
      });
      if (found.length === 0) return;
      var at = box[0] + (found[0][0] - x[0]) / (x[1] - x[0]) * (box[1] - box[0]);
      line.setAttribute('d', 'M' + at + ' ' + box[2] + 'V' + box[3]);
      out.textContent = found.map(function (p) {
        return 'step ' + p[0] + ': ' + short(p[1]);
      }).join(' | ');
    });
    svg.addEventListener('pointerleave', function () {
      line.setAttribute('d', '');
      out.textContent = '';
    });
  });

  /* --- timelines --- */
  document.querySelectorAll('svg.step').forEach(function (svg, index) {
    var box = numbers(svg, 'box'), end = Number(svg.dataset.end), zoom = 1;
    var out = svg.closest('section').querySelector('.legend output');
    var run = runs.filter(function (r) { return r.timeline; })[index];
    var unit = run.timeline.measured_seconds === undefined ? ' FLOPs' : ' ms';
    var factor = unit === ' ms' ? 1000 : 1;
    function show(group, event) {
      var time = (pointer(svg, event).x - box[0]) / (box[1] - box[0]) * end;
      var list = run.timeline.devices[Number(group.dataset.device)][group.dataset.key];
      var entry = list.find(function (e) {
        return !(time > e[4]) ? !(e[3] > time) : false;
      });
      var text = 'device ' + group.dataset.device + ', ' + short(time * factor) + unit + ': ';
      if (!entry) text += 'idle';
      else if (entry[0] === 'X') text += 'waits for other replicas';
      else if (entry[1] === -1) text += entry[2] + ' actions, mostly ' + entry[0];
      else text += entry[0] + entry[2] + ' of stage ' + entry[1];
      if (entry) text += ', ' + short((entry[4] - entry[3]) * factor) + unit;
      out.textContent = text;
    }
    svg.querySelectorAll('g[data-device]').forEach(function (group) {
      group.addEventListener('pointermove', function (event) { show(group, event); });
    });
    [['wider', 2], ['narrower', 0.5]].forEach(function (b) {
      var button = document.createElement('button');
      button.textContent = b[0];
      button.addEventListener('click', function () {
        zoom = Math.min(64, Math.max(1, zoom * b[1]));
        svg.style.width = 100 * zoom + '%';
        svg.style.maxWidth = 'none';
      });
      svg.parentNode.parentNode.insertBefore(button, svg.parentNode);
    });
  });
})();
